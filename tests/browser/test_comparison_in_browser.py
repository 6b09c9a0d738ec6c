"""Experiments side by side in a real browser: their curves on the selected axis."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.api.world import World
from tests.browser.charted import charted
from tests.browser.test_charts_in_browser import LONG_MS, drawn, state_of
from tests.browser.test_pages_in_browser import page_of

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

FITS = "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"


async def test_curves_are_drawn_against_the_chosen_axis(site: str, world: World, browser: Browser) -> None:
    await charted(world, "first", 40)
    await charted(world, "second", 60)
    async with page_of(browser) as page:
        await page.goto(f"{site}/compare-experiments?ids=first,second")
        figure = await drawn(page, "best_curves")
        await expect(figure.locator(".chart-count")).to_have_text("2 of 2 experiments have a result", timeout=LONG_MS)
        titles = {"elapsed": "time since the first trial", "clock": "clock (UTC)", "number": "number of the trial"}
        for name, title in titles.items():
            await figure.locator("select").select_option(name)
            await expect(figure.locator(".xtitle")).to_contain_text(title, timeout=LONG_MS)
            assert state_of(page).get("x", "number") == name
            traces = await figure.locator(".chart-body").evaluate("body => body.data.map(one => one.y)")
            assert len(traces) == 2
            assert all(list(y) == sorted(y, reverse=True) and len(y) > 1 for y in traces), "smaller is better"
        for width in (1200, 390):
            await page.set_viewport_size({"width": width, "height": 900})
            await page.wait_for_function(FITS, timeout=LONG_MS)  # the chart follows the window with a delay
            if folder := os.environ.get("SHOTS"):
                for theme in ("light", "dark"):
                    await page.emulate_media(color_scheme=theme)
                    await page.screenshot(path=Path(folder) / f"compare-{width}-{theme}.png", full_page=True)
