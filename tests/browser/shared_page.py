"""One address, and one process of the browser, for the pages of all tests.

A page that draws charts has 4 MB of script, which take a processor two seconds to compile, and an eighth of that where
the same process has compiled them before, for the same address. A window of its own costs half a second more. So the
manager of each test answers at one address, and a page opens beside one that stays. Nothing of an earlier test is left:
cookies, what the page remembers, and what was fetched are forgotten first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, Page
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

#: What a browser needs to have one process for an address.
ONE_PROCESS = "--process-per-site"
#: What a page can have beside others. All else, as no network, is of its context.
_OF_A_PAGE = {"viewport", "color_scheme", "java_script_enabled", "permissions"}
_USUAL = {"width": 1280, "height": 720}
#: Seconds for answers to end whose pages are closed.
_ENDED_WITHIN_S = 20


class Stage:
    """An application that stands for that of the test which runs."""

    def __init__(self) -> None:
        self._played: ASGIApp = PlainTextResponse("no test runs", 503)
        self._answers = set[asyncio.Task[object] | None]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answers, answer = self._answers, asyncio.current_task()
        answers.add(answer)
        try:
            await self._played(scope, receive, send)
        finally:
            answers.discard(answer)

    @asynccontextmanager
    async def play(self, application: ASGIApp, stopping: asyncio.Event) -> AsyncIterator[None]:
        """Until the test is over. Then streams end; raises TimeoutError where another answer does not."""
        before, self._played, self._answers = self._played, application, set()
        yield
        self._played = before
        stopping.set()
        async with asyncio.timeout(_ENDED_WITHIN_S):
            while self._answers:  # noqa: ASYNC110 (they tell nobody)
                await asyncio.sleep(0.01)


async def open_shared(browser: Browser, address: str) -> None:
    """The context that pages share, and a page in it for as long as the browser runs: its process stays."""
    context = await browser.new_context()
    await (await context.new_page()).goto(address)


@asynccontextmanager
async def opened(browser: Browser, *, is_alone: bool = False, **options: object) -> AsyncIterator[Page]:
    """A page, as a browser has it that was just started. `options`: as of a context. `is_alone`: in a process of its
    own."""
    if is_alone or not set(options) <= _OF_A_PAGE:
        owner: BrowserContext | Page = await browser.new_context(**options)  # type: ignore[arg-type]
        page = await owner.new_page()
    else:
        owner = page = await _beside(browser, options)
    try:
        yield page
    finally:
        if "permissions" in options:
            await page.context.clear_permissions()
        await owner.close()


async def _beside(browser: Browser, options: dict[str, object]) -> Page:
    context = browser.contexts[0]
    parts = urlsplit(context.pages[0].url)
    page = await context.new_page()
    session = await context.new_cdp_session(page)
    await session.send("Network.clearBrowserCache")
    kinds = {"origin": f"{parts.scheme}://{parts.netloc}", "storageTypes": "cookies,local_storage"}
    await session.send("Storage.clearDataForOrigin", kinds)
    if options.get("java_script_enabled") is False:
        await session.send("Emulation.setScriptExecutionDisabled", {"value": True})  # as long as the session lasts
    else:
        await session.detach()
    if "permissions" in options:
        await context.grant_permissions(options["permissions"])  # type: ignore[arg-type]
    await page.set_viewport_size(options.get("viewport", _USUAL))  # type: ignore[arg-type]
    await page.emulate_media(color_scheme=options.get("color_scheme"))  # type: ignore[arg-type]
    return page
