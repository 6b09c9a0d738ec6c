"""Refreshes of an open page: the last requested state stays; errors and data of removed parts do not."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Browser, CDPSession, Page, Route, expect

from tests.api.world import World
from tests.browser.charted import charted
from tests.browser.shared_page import opened
from tests.browser.test_charts_in_browser import LONG_MS, chart
from tests.browser.test_pages_in_browser import page_of
from tests.browser.test_table_in_browser import numbers, seeded

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

SET = "async changes => (await import('/static/state.js')).state.set(changes)"
REFRESH = "async () => { (await import('/static/live.js')).live.refresh(); }"
#: Times one second apart.
_LOOKS = 20


class Held:
    """Answers that are held until released."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._may_go = asyncio.Event()

    async def __call__(self, route: Route) -> None:
        answer = await route.fetch()
        self.asked.set()
        await self._may_go.wait()
        await route.fulfill(response=answer)

    def let_go(self) -> None:
        self._may_go.set()


async def test_chart_is_drawn_after_its_library_loads_late(site: str, world: World, browser: Browser) -> None:
    """The experiment has ended, so no change refreshes the chart."""
    await charted(world, "charted", 20)
    async with opened(browser) as page:
        script = re.compile("plotly[^/]*js")
        await page.route(script, lambda route: route.abort())
        await page.goto(f"{site}/experiments/charted")
        figure = chart(page, "distribution")
        await figure.scroll_into_view_if_needed()
        words = figure.locator(".chart-words")
        await expect(words).to_contain_text("could not be loaded", timeout=LONG_MS)
        await page.unroute(script)
        await expect(figure.locator(".main-svg").first).to_be_visible(timeout=LONG_MS)
        await expect(words).to_be_empty()


async def test_page_of_a_closed_experiment_reconnects(site: str, world: World, browser: Browser) -> None:
    """The experiment may be resumed or deleted."""
    await charted(world, "charted", 20)
    async with opened(browser) as page:
        await page.route(re.compile(r"/static/stream\.js"), soon)
        await page.goto(f"{site}/experiments/charted")
        await page.wait_for_event("request", lambda request: request.url.endswith("/stream"))
        change = "options => fetch('/api/v1/experiments/charted', options).then(answer => answer.status)"
        named = {
            "method": "PATCH",
            "headers": {"Content-Type": "application/json"},
            "body": '{"experimentName": "other"}',
        }
        assert await page.evaluate(change, named) == 200
        await expect(page.get_by_role("heading", level=1)).to_contain_text("other", timeout=LONG_MS)
        assert await page.evaluate(change, {"method": "DELETE"}) == 204
        await expect(page.locator("main")).to_contain_text("or it was deleted", timeout=LONG_MS)


async def soon(route: Route) -> None:
    """The stream's script, with a shorter wait."""
    answer = await route.fetch()
    text = await answer.text()
    assert "LONGEST_MS = 30000" in text
    await route.fulfill(response=answer, body=text.replace("LONGEST_MS = 30000", "LONGEST_MS = 500"))


async def test_error_of_one_filter_disappears_with_the_next(site: str, world: World, browser: Browser) -> None:
    await charted(world, "charted", 20)
    async with opened(browser) as page:
        await page.route(re.compile("analysis/results.*status=FAILED"), lambda route: route.fulfill(status=503))
        await page.goto(f"{site}/experiments/charted")
        figure = chart(page, "results")
        await expect(figure.locator(".chart-sketch")).to_be_visible(timeout=LONG_MS)
        await page.evaluate(SET, {"status": "FAILED"})
        await expect(figure.locator(".chart-words")).to_contain_text("not up to date", timeout=LONG_MS)
        await page.evaluate(SET, {"status": None})
        await expect(figure.locator(".chart-words")).to_be_empty(timeout=LONG_MS)


async def test_answer_of_an_earlier_address_is_ignored(site: str, world: World, browser: Browser) -> None:
    await seeded(world)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/seeded/trials?sort=number")
        earlier = await numbers(page)
        held = Held()
        await page.route(re.compile(r"/trials\?sort=number$"), held)
        await page.evaluate(REFRESH)
        await asyncio.wait_for(held.asked.wait(), 20)
        await page.locator("#sort-number").click()
        await expect(page).to_have_url(re.compile("sort=-number"))
        await expect(page.locator("[data-trial]").first).not_to_have_attribute("data-trial", earlier[0])
        later = await numbers(page)
        async with page.expect_response(re.compile(r"/trials\?sort=number$")):
            held.let_go()
        await page.wait_for_function(
            "new Promise(done => setTimeout(() => done(true), 100))"
        )  # long enough to be shown
        assert await numbers(page) == later
        await page.unroute_all()


async def test_requested_state_is_shown_with_refresh_off(site: str, world: World, browser: Browser) -> None:
    await seeded(world)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/seeded/trials")
        await page.locator("#refresh").select_option("off")
        held = Held()
        await page.route(re.compile(r"/trials\?status=FAILED$"), held)
        await page.evaluate(SET, {"status": "FAILED"})
        await asyncio.wait_for(held.asked.wait(), 20)
        await page.evaluate(SET, {"status": "EARLY_STOPPED"})
        held.let_go()
        await expect(page.locator("[data-trial] .badge:not(.early_stopped)")).to_have_count(0, timeout=20_000)
        await expect(page.locator("[data-trial] .badge.early_stopped").first).to_be_visible()
        await page.unroute_all()


async def test_charts_of_closed_drawers_are_released(site: str, world: World, browser: Browser) -> None:
    await charted(world, "charted", 30)
    # otherwise other pages in its process would be counted
    async with page_of(browser, is_alone=True, viewport={"width": 1400, "height": 900}) as page:
        session = await page.context.new_cdp_session(page)
        await page.goto(f"{site}/experiments/charted/trials?sort=number&status=SUCCEEDED")
        all_ = await numbers(page)
        await look_at(page, all_[:3])
        before = await settled(session)
        await look_at(page, all_[3:9])
        await grown_less(session, before, nodes=500, listeners=30)


async def look_at(page: Page, all_: list[str]) -> None:
    """Open one trial after another in the drawer."""
    for number in all_:
        await page.locator(f"#open-{number}").click()
        figure = page.locator(f"#drawer figure[data-selected='{number}']")
        await figure.scroll_into_view_if_needed()
        await expect(figure.locator(".main-svg").first).to_be_visible(timeout=LONG_MS)


async def settled(session: CDPSession) -> tuple[float, float]:
    """Memory of the page after it is stable for some seconds, when the last trial is completely drawn."""
    last: list[tuple[float, float]] = []
    for _ in range(_LOOKS):
        last = [*last[-2:], await kept(session)]
        if len(last) == 3 and len(set(last)) == 1:
            break
        await asyncio.sleep(1)
    return last[-1]


async def grown_less(session: CDPSession, before: tuple[float, float], nodes: int, listeners: int) -> None:
    """Wait until memory is released, which may take a moment on a busy machine. Raises AssertionError."""
    for left in reversed(range(_LOOKS)):
        grown = [now - then for now, then in zip(await kept(session), before, strict=True)]
        if grown[0] < nodes and grown[1] < listeners:
            return
        assert left, f"nodes and listeners more: {grown} above {before}"
        await asyncio.sleep(1)


async def kept(session: CDPSession) -> tuple[float, float]:
    """Number of nodes and listeners of the page."""
    await session.send("Performance.enable")
    await session.send("HeapProfiler.collectGarbage")
    found = {one["name"]: one["value"] for one in (await session.send("Performance.getMetrics"))["metrics"]}
    return found["Nodes"], found["JSEventListeners"]


async def test_cleared_filter_is_empty_in_its_form(site: str, world: World, browser: Browser) -> None:
    """Otherwise the next filter would include the cleared one."""
    await seeded(world)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/seeded/trials")
        await page.locator("#q").fill("e00")
        await page.locator("#status-SUCCEEDED").check()
        await page.locator("#q").press("Enter")
        await expect(page).to_have_url(re.compile("q=e00"))
        await page.locator("#clear").click()
        await expect(page).not_to_have_url(re.compile("q=e00"))
        await expect(page.locator("#q")).to_have_value("")
        await expect(page.locator("#status-SUCCEEDED")).not_to_be_checked()
        await page.locator("#q").fill("written")
        await page.evaluate(REFRESH)
        await page.wait_for_event("response")
        await expect(page.locator("#q")).to_have_value("written")
