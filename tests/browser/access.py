"""Accessibility violations of a page, found by axe-core; its script of half a megabyte is loaded once per page."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page

_ALL = {"resultTypes": ["violations"]}
_COLOURS = {**_ALL, "runOnly": ["color-contrast"]}


async def faults(page: Page, scheme: str) -> list[dict[str, Any]]:
    """Current violations of the page. In the dark theme only colours are checked."""
    if not await page.evaluate("typeof axe === 'object'"):
        await page.evaluate(_script())
    options = json.dumps(_COLOURS if scheme == "dark" else _ALL)
    found: list[dict[str, Any]] = await page.evaluate(f"async () => (await axe.run({options})).violations")
    return found


async def serious_faults(page: Page, scheme: str) -> list[tuple[str, list[object]]]:
    """The violated rules, with some elements each."""
    return [
        (one["id"], [node["target"] for node in one["nodes"]][:3])
        for one in await faults(page, scheme)
        if one["impact"] in ("serious", "critical")
    ]


@cache
def _script() -> str:
    return str(Axe().axe_script)
