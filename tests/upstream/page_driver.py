"""Actions and visible values on NNI 3.0's own page; any browser error fails the test."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, Expect, Locator, Page, Request, Response

from tests.browser.shared_page import opened

#: Hosts of fonts and icons, which the page does not need.
FONTS = "cdn.office.net"
#: For plain text, browsers request an icon at the root of the site, outside the prefix.
_ICON = "/favicon.ico"
#: The data of a chart, from its component.
_SERIES = """host => {
  let node = host[Object.keys(host).find(key => key.startsWith('__reactFiber'))];
  while (!node.stateNode?.getEchartsInstance) node = node.return;
  const series = node.stateNode.getEchartsInstance().getOption().series;
  return series.map(({type, name, data}) => JSON.parse(JSON.stringify({type, name, data})));
}"""
#: Axes and grids are grey; results are coloured.
_IS_DRAWN = """canvas => {
  const {width, height} = canvas, pixels = canvas.getContext('2d').getImageData(0, 0, width, height).data;
  let coloured = 0;
  for (let i = 0; i < pixels.length && coloured <= 20; i += 4) {
    const red = pixels[i], green = pixels[i + 1], blue = pixels[i + 2], alpha = pixels[i + 3];
    if (alpha > 100 && Math.max(red, green, blue) - Math.min(red, green, blue) > 40) coloured++;
  }
  return coloured > 20;
}"""

#: Like `playwright.async_api.expect`, with a timeout for slow machines.
expect = Expect()
expect.set_options(timeout=40_000)


class NniPage:
    """One window. `url`: the page's address, which ends in ``/``."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.calls: list[str] = []
        #: Methods and paths below the API's root that are refused.
        self.refused: set[str] = set()

    async def open(self, name: str = "") -> None:
        await self.page.goto(f"{self.url}{name}")

    def called(self, request: Request) -> None:
        found = re.search(r"/api/v1/nni/(.*)", request.url)
        if found is not None:
            self.calls.append(f"{request.method} {found[1]}")

    def is_refused(self, address: str, method: str = "") -> bool:
        path = urlsplit(address).path.rpartition("/api/v1/nni/")[2]
        return any(one.split()[1] == path and method in ("", one.split()[0]) for one in self.refused)

    # Visible values

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def rows(self) -> Locator:
        return self.page.locator("[data-automationid=DetailsRow]")

    def row(self, text: str) -> Locator:
        return self.rows().filter(has_text=text)

    async def cells(self, column: str) -> list[str]:
        """The texts of a column, from top to bottom, without button icons."""
        found = await self.page.locator(f"[data-automationid=DetailsRow] [data-automation-key={column}]").all()
        return [(await cell.inner_text()).strip().partition("\n")[0] for cell in found]

    async def count(self, label: str) -> str:
        """Texts of the trials on the overview."""
        name = self.page.locator(".trialCount").get_by_text(label, exact=True)
        return await name.locator("xpath=following-sibling::p[1]").inner_text()

    async def series(self, where: str = "") -> list[dict[str, Any]]:
        """The data of the only chart in `where`, after it is drawn."""
        chart = self.page.locator(f"{where} .echarts-for-react")
        await self.drawn(chart.locator("canvas"))
        return await chart.evaluate(_SERIES)  # type: ignore[no-any-return]

    async def drawn(self, canvas: Locator) -> None:
        element = await canvas.element_handle(timeout=40_000)
        await self.page.wait_for_function(_IS_DRAWN, arg=element, polling=100, timeout=40_000)

    async def editor(self) -> str:
        """The visible text of the only editor."""
        lines = self.page.locator(".monaco-editor .view-lines")
        await expect(lines).to_contain_text(re.compile(r"\S"))
        return (await lines.inner_text()).replace("\u00a0", " ")

    # Actions

    async def icon(self, alt: str) -> None:
        await self.page.locator(f"img[alt='{alt}']").click()

    async def tab(self, name: str) -> None:
        await self.page.get_by_role("tab", name=name).click()

    async def close(self) -> None:
        """A panel or a dialog."""
        await self.button("Close").click()
        await expect(self.button("Close")).to_have_count(0)

    async def edit(self, field: str, value: object) -> str:
        """Change a number on the overview; returns the page's message."""
        await self.page.locator(f".{field}.show-params").click()
        await self.page.locator(f"input.{field}").fill(str(value))
        await self.page.locator(".edit-params .confirm").click()
        own = self.page.locator(".edit-position").filter(has=self.page.locator(f".{field}.show-params"))
        said = own.locator(".ms-MessageBar-text")
        await expect(said).to_be_visible()
        text = await said.inner_text()
        await expect(self.page.locator(".edit-params")).to_have_count(0)
        return text

    async def refresh(self, how: str) -> None:
        """Set the page's refresh interval; it refreshes at once."""
        await self.page.locator(".nav-refresh button").click()
        async with self.page.expect_response(re.compile("check-status")):
            await self.page.get_by_role("menuitem", name=how).click()

    async def shows(self, where: Locator, text: str) -> None:
        """Press "Refresh" until it works: the page appears with the results, possibly before the list of trials."""
        for _ in range(9):
            await self.button("Refresh").click()
            try:
                return await expect(where).to_contain_text(text, timeout=3_000)
            except AssertionError:
                continue
        await expect(where).to_contain_text(text)

    async def opened(self, click: Locator) -> str:
        """The text in the window that a click opens."""
        async with self.page.expect_popup() as window:
            await click.click()
        popup = await window.value
        await popup.wait_for_load_state()
        text = await popup.locator("body").inner_text()
        await popup.close()
        return text


@asynccontextmanager
async def nni_page(browser: Browser, url: str, shots: Path) -> AsyncIterator[NniPage]:
    """A window. Raises AssertionError at the end if anything failed unexpectedly.

    `shots`: folder for a screenshot if the test fails.
    """
    async with opened(browser, viewport={"width": 1500, "height": 1000}) as window:
        page = NniPage(window, url)
        troubles = _watch(page)
        try:
            yield page
        except Exception:
            await window.screenshot(path=shots / "failed.png")
            raise
    assert troubles == []


def _watch(page: NniPage) -> list[str]:
    """Record errors from now on, except requests that are aborted when a page is left."""
    troubles: list[str] = []

    def note(address: str, text: str) -> None:
        parts = urlsplit(address)
        if not (parts.hostname or "").endswith(FONTS) and parts.path != _ICON:
            troubles.append(f"{text} {address}")

    def responded(response: Response) -> None:
        if response.status >= 400 and not page.is_refused(response.url, response.request.method):
            note(response.url, f"{response.request.method} {response.status}")

    def failed(request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":
            note(request.url, f"{request.method} {request.failure}")

    def heard(window: Page) -> None:
        window.on("request", page.called)
        window.on("response", responded)
        window.on("requestfailed", failed)
        window.on("pageerror", lambda error: troubles.append(f"not caught: {error.message}"))
        window.on("console", lambda message: _hear(message.type, message.location["url"], message.text, page, note))

    heard(page.page)
    page.page.on("popup", heard)
    return troubles


def _hear(kind: str, address: str, text: str, page: NniPage, note: Any) -> None:
    """Whether a console message is about an expected refusal."""
    if kind == "error" and not page.is_refused(address):
        note(address, f"console: {text}")
