"""Chromium like a user's browser: time from the click to the drawn page, and memory of the tab."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from tests.browser.conftest import ARGUMENTS, CHROMIUM

#: Window of a common laptop.
VIEWPORT = {"width": 1400, "height": 900}
#: Maximum seconds per step; a compared page may take long.
PATIENCE_S = 240


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


@contextmanager
def tab(browser: Browser) -> Iterator[Page]:
    """A page of a browser with an empty cache."""
    context = browser.new_context(viewport=VIEWPORT)  # type: ignore[arg-type]  # a dict of the two numbers
    page = context.new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    yield page
    context.close()


def seconds_until(page: Page, url: str, holds: str) -> float:
    """Seconds from entering the address to the first frame in which the JavaScript expression is true."""
    began = time.perf_counter()
    page.goto(url, wait_until="commit")
    page.wait_for_function(f"() => {holds}", polling="raf")
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    return time.perf_counter() - began


def tab_mib() -> tuple[float, float]:
    """(private memory, private memory plus its part of shared memory) of the largest tab, MiB."""
    found = [process.memory_full_info() for process in _processes() if "--type=renderer" in _command(process)]
    largest = max(found, key=lambda one: one.uss)
    return largest.uss / 2**20, largest.pss / 2**20


class Traffic:
    """Bytes that a page receives over the network from now on."""

    def __init__(self, page: Page) -> None:
        self._session: CDPSession = page.context.new_cdp_session(page)
        self.bytes = 0
        self.answers = 0
        for name in ("Network.responseReceived", "Network.dataReceived", "Network.eventSourceMessageReceived"):
            self._session.on(name, getattr(self, f"_{name.partition('.')[2]}"))
        self._session.send("Network.enable")

    def _responseReceived(self, event: dict[str, Any]) -> None:
        self.answers += 1
        self.bytes += int(event["response"].get("encodedDataLength", 0))

    def _dataReceived(self, event: dict[str, Any]) -> None:
        self.bytes += int(event["encodedDataLength"] or event["dataLength"])

    def _eventSourceMessageReceived(self, event: dict[str, Any]) -> None:
        self.bytes += len(event["data"])


def processes() -> list[tuple[str, psutil.Process]]:
    """(kind, process) of the browser that this process started."""
    found = []
    for process in _processes():
        kinds = [word.partition("=")[2] for word in _command(process).split() if word.startswith("--type=")]
        found.append((f"chromium {kinds[0]}" if kinds else "chromium", process))
    return found


def _processes() -> list[psutil.Process]:
    """Processes of the browser that this process started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        if "chromium" in _command(process):
            found.append(process)
    return found


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
