"""A page of another origin in a real browser can neither read from nor write to a daemon without a token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright
from starlette.responses import HTMLResponse
from starlette.types import Receive, Scope, Send

from tests.api.listeners import tcp_listener
from tests.api.world import World
from tests.browser.conftest import ARGUMENTS, CHROMIUM

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]  # the scope of the browser

#: A foreign host name that resolves to this machine, as in DNS rebinding.
EVIL = "evil.example"
#: Sends a request; returns a status, a text, or the name of an error.
FETCH = """async ([url, options]) => {
  try { const answer = await fetch(url, options); return [answer.type, answer.status, await answer.text()]; }
  catch (error) { return ["failed", 0, error.name]; }
}"""
LOAD = """([tag, url]) => new Promise(done => {
  const element = document.createElement(tag);
  element.onload = () => done("loaded"); element.onerror = () => done("failed");
  element.src = url; document.body.append(element); setTimeout(() => done("failed"), 10000);
})"""
STREAM = """url => new Promise(done => {
  const stream = new EventSource(url);
  stream.onmessage = message => done(message.data); stream.onerror = () => done("failed");
})"""
SOCKET = """url => new Promise(done => {
  const socket = new WebSocket(url); socket.onopen = () => done("open"); socket.onerror = () => done("failed");
})"""
FORM = """([url, type]) => {
  const form = document.createElement("form"), field = document.createElement("input");
  Object.assign(form, {method: "POST", action: url, enctype: type});
  Object.assign(field, {name: '{"parameters": {"x": 0.5}, "ignored": "', value: '"}'});
  form.append(field); document.body.append(form); form.submit();
}"""


async def _blank(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await HTMLResponse("<!doctype html><title>Elsewhere</title><body></body>")(scope, receive, send)


@asynccontextmanager
async def foreign_page(browser: Browser, host: str) -> AsyncIterator[Page]:
    """A page of the origin ``http://<host>:<a port of its own>``."""
    async with tcp_listener(_blank) as address:
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(f"http://{host}:{address.port}/")
        yield page
        await context.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def evil_browser() -> AsyncIterator[Browser]:
    """A browser that also resolves the foreign name."""
    rules = f"--host-resolver-rules=MAP {EVIL} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    arguments = [each for each in ARGUMENTS if not each.startswith("--host-resolver-rules")]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*arguments, rules])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def experiment(site: str, world: World) -> str:
    async with httpx.AsyncClient(base_url=site, trust_env=False) as api:
        return str((await api.post("/api/v1/experiments", json=world.config())).json()["id"])


@pytest.mark.parametrize("host", ["127.0.0.1", EVIL])
async def test_foreign_page_reads_nothing(evil_browser: Browser, site: str, experiment: str, host: str) -> None:
    own = f"/api/v1/experiments/{experiment}"
    async with foreign_page(evil_browser, host) as page:
        for path in ("/", "/api/v1/experiments", own, f"{own}/logs/nnimanager.log", "/metrics", "/static/live.js"):
            for mode in ("cors", "no-cors"):
                kind, status, text = await page.evaluate(FETCH, [f"{site}{path}", {"mode": mode}])
                assert kind in ("failed", "opaque") and status == 0, (path, mode, kind, status)
                assert text in ("TypeError", ""), (path, mode, text)
        for tag in ("img", "script"):
            for path in ("/static/icon.svg", "/static/live.js", "/api/v1/experiments"):
                assert await page.evaluate(LOAD, [tag, f"{site}{path}"]) == "failed", (tag, path)
        assert await page.evaluate(STREAM, f"{site}{own}/events") == "failed"
        assert await page.evaluate(SOCKET, f"ws://{urlsplit(site).netloc}/api/v1/experiments") == "failed"
        await page.evaluate(
            "url => { const f = document.createElement('iframe'); f.src = url; document.body.append(f); }", site
        )
        await page.wait_for_function("() => document.querySelector('iframe') !== null")
        frame = await (await page.query_selector("iframe")).content_frame()  # type: ignore[union-attr]
        assert frame is not None
        await frame.wait_for_load_state()
        assert experiment not in await frame.content()


@pytest.mark.parametrize("host", ["127.0.0.1", EVIL])
async def test_foreign_page_changes_nothing(
    evil_browser: Browser, site: str, world: World, experiment: str, host: str
) -> None:
    own = f"{site}/api/v1/experiments/{experiment}"
    body = '{"parameters": {"x": 0.5}}'
    writes: list[tuple[str, dict[str, Any]]] = [
        (f"{own}/trials", {"method": "POST", "mode": "no-cors", "body": body}),
        (f"{own}/trials", {"method": "POST", "headers": {"Content-Type": "application/json"}, "body": body}),
        (f"{own}/stop", {"method": "POST", "mode": "no-cors", "keepalive": True}),
        (f"{own}/stop", {"method": "POST", "credentials": "include"}),
        (own, {"method": "DELETE"}),
        (own, {"method": "PATCH", "headers": {"Content-Type": "application/json"}, "body": '{"maxTrialNumber": 1}'}),
        (f"{site}/experiments/{experiment}/stop", {"method": "POST", "mode": "no-cors"}),
        (f"{site}/api/v1/daemon/stop", {"method": "POST", "mode": "no-cors"}),
    ]
    async with foreign_page(evil_browser, host) as page:
        for url, options in writes:
            kind, _, _ = await page.evaluate(FETCH, [url, options])
            assert kind in ("failed", "opaque"), (url, options, kind)
        await page.evaluate("url => navigator.sendBeacon(url, '{}')", f"{own}/stop")
        elsewhere = page.url
        for url in (f"{own}/trials", f"{own}/stop", f"{site}/experiments/{experiment}/stop"):
            for kind in ("text/plain", "application/x-www-form-urlencoded"):
                async with page.expect_navigation() as navigation:
                    await page.evaluate(FORM, [url, kind])
                answer = await navigation.value
                assert answer is not None and answer.status == 403, (url, kind)
                await page.goto(elsewhere)
    async with httpx.AsyncClient(base_url=site, trust_env=False) as api:
        state = (await api.get(f"/api/v1/experiments/{experiment}")).json()
        assert state["status"] == "RUNNING" and sum(state["counts"].values()) == 0, state
    assert world.daemon_stops == []


async def test_rebound_host_name_is_refused(evil_browser: Browser, site: str, experiment: str) -> None:
    """The browser then considers the page same-origin."""
    context = await evil_browser.new_context()
    page = await context.new_page()
    answer = await page.goto(f"http://{EVIL}:{urlsplit(site).port}/")
    assert answer is not None and answer.status == 403
    found = await page.evaluate(FETCH, ["/api/v1/experiments", {}])
    assert found[1] in (0, 403) and experiment not in found[2]
    await context.close()


async def test_link_from_another_site_can_be_followed(evil_browser: Browser, site: str, experiment: str) -> None:
    async with foreign_page(evil_browser, EVIL) as page:
        async with page.expect_navigation() as navigation:
            await page.evaluate("url => { location.href = url; }", f"{site}/experiments/{experiment}")
        answer = await navigation.value
        assert answer is not None and answer.status == 200
        assert experiment in await page.content()
        await asyncio.wait_for(page.goto("about:blank"), 20)
