"""One address and one browser process for the pages of all tests.

A page with charts has 4 MB of scripts, which take two seconds to compile, but an eighth of that in a process that has
compiled them before for the same address. A separate window takes half a second more. So the manager of each test
serves at one address, and a page opens next to one that stays open. Cookies, storage and caches are cleared before
each test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, Page
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

#: Options with which a browser uses one process per address.
ONE_PROCESS = "--process-per-site"
#: Options of a page. All others, such as being offline, belong to its context.
_OF_A_PAGE = {"viewport", "color_scheme", "java_script_enabled", "permissions"}
_USUAL = {"width": 1280, "height": 720}
#: Seconds for answers of closed pages to end.
_ENDED_WITHIN_S = 20


class Stage:
    """An application that forwards to that of the current test."""

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
        """Forward to an application until the test ends, which ends streams. Raises TimeoutError for open answers."""
        before, self._played, self._answers = self._played, application, set()
        yield
        self._played = before
        stopping.set()
        async with asyncio.timeout(_ENDED_WITHIN_S):
            while self._answers:  # noqa: ASYNC110 (they tell nobody)
                await asyncio.sleep(0.01)


async def open_shared(browser: Browser, address: str) -> None:
    """The shared context, with a page that stays open, so that its process stays."""
    context = await browser.new_context()
    await (await context.new_page()).goto(address)


@asynccontextmanager
async def opened(browser: Browser, *, is_alone: bool = False, **options: object) -> AsyncIterator[Page]:
    """A page like in a new browser. `options`: as of a context. `is_alone`: in a separate process."""
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
        await session.send("Emulation.setScriptExecutionDisabled", {"value": True})  # until the session ends
    else:
        await session.detach()
    if "permissions" in options:
        await context.grant_permissions(options["permissions"])  # type: ignore[arg-type]
    await page.set_viewport_size(options.get("viewport", _USUAL))  # type: ignore[arg-type]
    await page.emulate_media(color_scheme=options.get("color_scheme"))  # type: ignore[arg-type]
    return page
