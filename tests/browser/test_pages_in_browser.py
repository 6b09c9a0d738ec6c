"""The pages in a real browser: no errors, live updates, keyboard and small screens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, Response, Route, expect

from nni_manager.api.application import create_application
from nni_manager.domain.experiment import ExperimentStatus, Hold, HoldCode
from nni_manager.web.pages import PagesContext, create_pages
from tests.api.listeners import tcp_listener
from tests.api.world import World
from tests.browser.shared_page import opened

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]  # the scope of the browser

TOKEN = "correct horse battery"
HOLD = Hold(
    code=HoldCode.TUNER_RAISED,
    sentence="the tuner raised ValueError: x is not in the space",
    details='Traceback (most recent call last):\n  File "tuner.py", line 7\nValueError: x',
)


@asynccontextmanager
async def page_of(browser: Browser, **options: Any) -> AsyncIterator[Page]:
    """A page; any browser error fails the test."""
    troubles: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            troubles.append(message.text)

    def answered(answer: Response) -> None:
        if answer.status >= 400:
            troubles.append(f"{answer.status} {answer.url}")

    async with opened(browser, **options) as page:
        page.on("console", heard)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("response", answered)
        yield page
    assert troubles == []


async def is_wider_than_screen(page: Page) -> bool:
    return bool(await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


async def put_on_hold(world: World, id: str) -> None:
    """A page of an open experiment, because a closed one gets no events."""
    await world.commands.resume(id)
    experiment = world.commands.at_work(id)
    assert experiment is not None
    experiment.loop.inbox.put_on_hold(HOLD)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_both_pages_open(browser: Browser, site: str, world: World, scheme: str, width: int) -> None:
    await world.add("seeded", extra_trials=60, maxTrialNumber=100)
    await world.add("finished", status=ExperimentStatus.DONE)
    await put_on_hold(world, "seeded")
    async with page_of(browser, color_scheme=scheme, viewport={"width": width, "height": 900}) as page:
        await page.goto(site)
        await expect(page.locator("tbody tr")).to_have_count(2)
        assert not await is_wider_than_screen(page)
        await page.locator("#open-seeded").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("digits")
        await page.get_by_text("Details", exact=True).click()
        await expect(page.locator("pre").first).to_be_visible()
        assert not await is_wider_than_screen(page)
        await page.locator("#tabs").get_by_role("link", name="Trials").click()
        await expect(page.locator("[data-trial]")).to_have_count(50)
        assert not await is_wider_than_screen(page)
        await page.locator("#sort-result").click()
        await expect(page.locator("th", has=page.locator("#sort-result"))).to_have_attribute("aria-sort", "ascending")
        await expect(page.locator("#sort-result")).to_have_attribute("href", re.compile("sort=-result"))
        await page.locator("#sort-result").click()
        await expect(page).to_have_url(re.compile("sort=-result"))
        await expect(page.locator("[data-trial]").first).to_contain_text("0.9")


async def test_experiment_is_watched_and_stopped(browser: Browser, site: str, world: World) -> None:
    async with httpx.AsyncClient(base_url=site, trust_env=False) as api:
        id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
        async with page_of(browser) as page:
            await page.goto(f"{site}/experiments/{id_}/trials")
            await expect(page.get_by_text("No trials yet.")).to_be_visible()
            await page.locator("#stop").click()
            added = await api.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": 0.5}})
            kill = page.locator(f"#kill-{added.json()['id']}")
            await expect(kill).to_be_visible()  # without a reload
            await expect(page.locator("#stop-now")).to_be_visible()  # open elements stay open
            await page.locator("#stop").click()
            await kill.click()
            await page.locator(f"#kill-now-{added.json()['id']}").click()
            await expect(page.locator("tbody")).to_contain_text("USER_CANCELED")
            await page.locator("#stop").click()
            await page.locator("#stop-now").click()
            await expect(page.locator(".heading .badge")).to_have_text("STOPPED")
            await page.get_by_role("button", name="Resume").click()
            await expect(page.locator(".heading .badge")).to_have_text("RUNNING")
            await page.goto("about:blank")


async def test_unchanged_elements_are_not_touched(browser: Browser, site: str, world: World) -> None:
    async with httpx.AsyncClient(base_url=site, trust_env=False) as api, page_of(browser) as page:
        id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
        trials = f"/api/v1/experiments/{id_}/trials"
        await api.post(trials, json={"parameters": {"x": 0.5}})
        await page.goto(f"{site}/experiments/{id_}/trials")
        rows = page.locator("tr[data-trial]")
        await expect(rows).to_have_count(1)
        await api.post(trials, json={"parameters": {"x": 0.25}})
        await expect(rows).to_have_count(2)
        await page.locator("#open-0").focus()
        await page.evaluate("for (const row of document.querySelectorAll('tr[data-trial]')) row.isTheSame = true")
        await api.post(trials, json={"parameters": {"x": 0.125}})
        await expect(rows).to_have_count(3)
        await expect(rows.first).to_contain_text("0.125")  # the newest comes first
        same = "[...document.querySelectorAll('tr[data-trial]')].map(row => row.isTheSame === true)"
        assert await page.evaluate(same) == [False, True, True]
        await expect(page.locator("#open-0")).to_be_focused()
        await expect(page.locator("#matching")).to_have_text("3 trials")
        await page.goto("about:blank")


async def test_failed_fetch_is_retried(browser: Browser, site: str, world: World) -> None:
    """The experiment's last event has already arrived, so only a retry updates the page."""
    async with httpx.AsyncClient(base_url=site, trust_env=False) as api:
        id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
        async with opened(browser) as page:
            await page.goto(f"{site}/experiments/{id_}/trials")
            await expect(page.get_by_text("No trials yet.")).to_be_visible()
            aborted: list[str] = []

            async def abort(route: Route) -> None:
                aborted.append(route.request.url)
                await route.abort()

            await page.route("**/trials", abort, times=1)
            added = await api.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": 0.5}})
            await expect(page.locator("#connection")).to_be_visible()
            await expect(page.locator("tbody")).to_contain_text(added.json()["id"], timeout=20_000)
            await expect(page.locator("#connection")).to_be_hidden()
            assert len(aborted) == 1


async def test_late_answer_does_not_restore_the_previous_state(browser: Browser, site: str, world: World) -> None:
    """The reader sorts the table while a fetch of the previous state is running."""
    late, go_on = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        answer = await route.fetch()
        late.set()
        await go_on.wait()
        await route.fulfill(response=answer)

    async with httpx.AsyncClient(base_url=site, trust_env=False) as api, page_of(browser) as page:
        id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
        trials = f"/api/v1/experiments/{id_}/trials"
        await api.post(trials, json={"parameters": {"x": 0.5}})
        await page.goto(f"{site}/experiments/{id_}/trials")
        await expect(page.locator("tr[data-trial]")).to_have_count(1)
        await page.route("**/trials", hold, times=1)
        await api.post(trials, json={"parameters": {"x": 0.25}})
        await late.wait()
        await page.locator("#sort-result").click()
        heading = page.locator("th", has=page.locator("#sort-result"))
        await expect(heading).to_have_attribute("aria-sort", "ascending")
        order = "document.getElementById('sort-result').closest('th').ariaSort"  # at once: the next fetch fixes it
        told = f"document.addEventListener('refreshed', () => told({order}), {{once: true}})"
        await page.evaluate(f"() => {{ window.shown = new Promise(told => {told}); }}")
        go_on.set()
        assert await page.evaluate("() => window.shown") == "ascending"
        assert "sort=result" in page.url
        await api.post(trials, json={"parameters": {"x": 0.125}})
        after_a_pause_ms = 60_000  # three times the duration of that fetch, at most ten seconds
        await expect(page.locator("tr[data-trial]")).to_have_count(3, timeout=after_a_pause_ms)
        await expect(heading).to_have_attribute("aria-sort", "ascending")
        await page.goto("about:blank")


async def test_slow_fetch_does_not_delay_the_next(browser: Browser, site: str, world: World) -> None:
    held, go_on = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        held.set()
        await go_on.wait()
        await route.continue_()

    async with httpx.AsyncClient(base_url=site, trust_env=False) as api, page_of(browser) as page:
        id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
        trials = f"/api/v1/experiments/{id_}/trials"
        await page.clock.install()
        await page.goto(f"{site}/experiments/{id_}/trials")
        await page.route("**/trials", hold, times=1)
        await api.post(trials, json={"parameters": {"x": 0.5}})
        await held.wait()
        await page.clock.fast_forward(60_000)
        go_on.set()
        await expect(page.locator("tr[data-trial]")).to_have_count(1)
        await api.post(trials, json={"parameters": {"x": 0.25}})
        await page.clock.fast_forward(11_000)
        await expect(page.locator("tr[data-trial]")).to_have_count(2)
        await page.goto("about:blank")


async def test_browser_logs_in_with_a_form(browser: Browser, world: World) -> None:
    """At a listener with a token: a wrong token is refused, the right one opens the requested page."""
    await world.add("finished", status=ExperimentStatus.DONE)
    pages = create_pages(PagesContext(commands=world.commands, version="1.2.3", analysis=world.analysis))
    async with tcp_listener(create_application(world.context, token=TOKEN, pages=pages)) as address:
        site, context = f"http://127.0.0.1:{address.port}", await browser.new_context()
        page = await context.new_page()
        await page.goto(f"{site}/experiments/finished?order=-final")
        for token in ("wrong", TOKEN):
            await page.get_by_label("Token of this daemon").fill(token)
            await page.get_by_role("button", name="Log in").click()
            if token == "wrong":
                await expect(page.get_by_role("alert")).to_have_text("Wrong token.")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("finished")
        assert page.url == f"{site}/experiments/finished?order=-final"
        await context.close()
        world.stopping.set()


async def test_pages_work_without_scripts(browser: Browser, site: str, world: World) -> None:
    async with httpx.AsyncClient(base_url=site, trust_env=False) as api:
        id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
    async with page_of(browser, java_script_enabled=False) as page:
        await page.goto(f"{site}/experiments/{id_}")
        await page.locator("#stop").click()
        await page.locator("#stop-now").click()
        await expect(page.locator(".heading .badge")).to_have_text("STOPPED")
        await page.get_by_role("button", name="Resume").click()
        await expect(page.locator(".heading .badge")).to_have_text("RUNNING")


async def test_keys_reach_everything_in_order(browser: Browser, site: str, world: World) -> None:
    await world.add("seeded")
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/seeded")
        reached = []
        for _ in range(16):
            await page.keyboard.press("Tab")
            reached.append(
                await page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")
            )
        assert reached[0] == "Skip to content" and "resume" in reached
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none"
