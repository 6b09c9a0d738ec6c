"""A manager with some history behind a real port, and Debian's Chromium."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from nni_manager.api.application import create_application
from nni_manager.web.pages import PagesContext, create_pages
from tests.api.listeners import tcp_listener
from tests.api.world import World, make_world

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-default-apps",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


@pytest_asyncio.fixture(loop_scope="module")
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with make_world(tmp_path, monkeypatch) as world:
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def site(world: World) -> AsyncIterator[str]:
    """URL of the pages."""
    pages = create_pages(
        PagesContext(service=world.service, version="1.2.3", analysis=world.analysis, stopping=world.stopping)
    )
    async with tcp_listener(create_application(world.context, pages=pages)) as address:
        yield f"http://127.0.0.1:{address.port}"
        world.stopping.set()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """For all tests of a module, which share its event loop; each has a context of its own."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        await browser.close()
