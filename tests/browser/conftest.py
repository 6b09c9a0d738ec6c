"""A manager with some history on a real port, and Debian's Chromium.

Most tests use its headless shell: the same engine and network without windows, which takes a third less time, and a
second less at the start. `test_foreign_page.py` uses the full browser, because it tests a browser's protections.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from nni_manager.analysis.service import WorkerProcess
from nni_manager.api import submission
from nni_manager.api.application import create_application
from nni_manager.web.pages import PagesContext, create_pages
from tests.api.listeners import tcp_listener
from tests.api.world import World, make_world
from tests.browser import shared_analysis
from tests.browser.shared_page import ONE_PROCESS, Stage, open_shared

CHROMIUM = "/usr/bin/chromium"
SHELL = "/usr/bin/chromium-headless-shell"
_SAME = [
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
#: Executable of the full browser.
ARGUMENTS = ["--headless=new", *_SAME]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all browser tests in one process, which starts the browser once."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.group("browser"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def analyst() -> AsyncIterator[WorkerProcess]:
    """The analysis process."""
    process = await WorkerProcess.start()
    yield process
    await process.close()


@pytest_asyncio.fixture(loop_scope="session")
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, analyst: WorkerProcess) -> AsyncIterator[World]:
    shared_analysis.share(analyst, monkeypatch)
    async with make_world(tmp_path, monkeypatch) as world:
        yield world


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stage() -> AsyncIterator[tuple[Stage, str]]:
    """The server of all tests, and its URL."""
    stage = Stage()
    async with tcp_listener(stage) as address:
        yield stage, f"http://127.0.0.1:{address.port}"


@pytest_asyncio.fixture(loop_scope="session")
async def site(world: World, stage: tuple[Stage, str]) -> AsyncIterator[str]:
    """Serve the pages; returns their URL."""
    pages = create_pages(
        PagesContext(
            commands=world.commands,
            version="1.2.3",
            analysis=world.analysis,
            stopping=world.stopping,
            read_experiment=lambda text: submission.of_pasted(text, world.context),
            data_directory=world.data,
        )
    )
    played, url = stage
    async with played.play(create_application(world.context, pages=pages), world.stopping):
        yield url


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(stage: tuple[Stage, str]) -> AsyncIterator[Browser]:
    """The browser of all tests, which share its event loop; the first context is shared."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=SHELL, args=[*_SAME, ONE_PROCESS])
        await open_shared(browser, stage[1])
        yield browser
        await browser.close()
