"""One trial in a real browser: log, drawer, no execution of stored text, read-only sessions."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import httpx
import pytest
from playwright.async_api import Browser, expect

from nni_manager.api.application import create_application
from nni_manager.web.pages import PagesContext, create_pages
from tests.api.listeners import tcp_listener
from tests.api.world import World
from tests.browser.test_pages_in_browser import TOKEN, is_wider_than_screen, page_of

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

HOSTILE = '"><script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">'


async def running(world: World, site: str) -> tuple[str, str]:
    """(experiment id, id of its only trial), with an attempt and a stdout."""
    async with httpx.AsyncClient(base_url=site, trust_env=False) as api:
        id_ = str((await api.post("/api/v1/experiments", json=world.config())).json()["id"])
        added = await api.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": 0.5}})
        trial = str(added.json()["id"])
        experiment = world.commands.at_work(id_)
        assert experiment is not None
        with experiment.changes.watch() as news:
            while (await api.get(f"/api/v1/experiments/{id_}/trials/{trial}")).json()["status"] != "RUNNING":
                await news.wait()
                news.clear()
    return id_, trial


async def test_log_is_followed_searched_and_selected(browser: Browser, site: str, world: World) -> None:
    id_, trial = await running(world, site)
    folder = (await world.commands.entry(id_)).folder.trials / trial
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stdout").write_text("".join(f"epoch {number}\n" for number in range(500)))
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/{id_}/trials/0")
        log = page.locator("#log-text")
        await expect(log).to_contain_text("epoch 499")
        with (folder / "stdout").open("a") as file:
            file.write("the newest line\x1b[0m\n")
        await expect(log).to_contain_text("the newest line\n")
        assert await log.evaluate("e => e.scrollHeight - e.scrollTop - e.clientHeight < 30")
        await page.get_by_label("Search the log").fill("EPOCH 49")
        await expect(page.locator("#log-found")).to_have_text("11 of 11")
        await page.get_by_label("Search the log").press("Enter")
        await expect(page.locator("#log-found")).to_have_text("1 of 11")
        (folder / "stderr").write_text("a warning\n")
        await page.locator("[data-log-name=stderr]").click()
        await page.get_by_label("Search the log").fill("")
        await expect(log).to_have_text("a warning\n")
        await expect(page.locator("#log-download")).to_have_attribute(
            "href", f"/api/v1/experiments/{id_}/trials/{trial}/logs/stderr?attempt=1"
        )
        await page.goto("about:blank")


async def test_trial_is_killed_after_confirmation(browser: Browser, site: str, world: World) -> None:
    id_, _ = await running(world, site)
    async with page_of(browser, java_script_enabled=False) as page:
        await page.goto(f"{site}/experiments/{id_}/trials/0")
        await expect(page.locator("#kill-now")).to_be_hidden()
        await page.locator("#kill").click()
        await page.locator("#kill-now").click()
        assert page.url == f"{site}/experiments/{id_}/trials/0"
        await page.get_by_role("button", name="Run again").click()
        assert page.url == f"{site}/experiments/{id_}/trials/1"
        await expect(page.get_by_text("repeats trial 0")).to_be_visible()


async def test_drawer_opens_with_focus_and_closes_with_escape(browser: Browser, site: str, world: World) -> None:
    await world.add("seeded")
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/seeded/trials")
        await page.locator("tr[data-trial='3'] td").last.click()
        title = page.locator("#drawer #trial-title")
        await expect(title).to_contain_text("Trial 3")
        await expect(title).to_be_focused()
        assert "trial=3" in page.url
        await page.locator("#drawer #trial-next").click()
        await expect(title).to_contain_text("Trial 4")
        await page.keyboard.press("Escape")
        await expect(page.locator("#drawer")).to_be_hidden()
        assert "trial=" not in page.url
        await page.goto("about:blank")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_stored_text_is_shown_and_not_run(browser: Browser, site: str, world: World, scheme: str) -> None:
    folder = await world.add("seeded")
    values = {HOSTILE: {"_name": HOSTILE, "x": HOSTILE}}
    record = json.dumps({"parameter_id": 0, "parameter_source": "algorithm", "parameters": values})
    with contextlib.closing(sqlite3.connect(folder.database)) as connection, connection:
        connection.execute(
            "UPDATE trials SET record = ?, message = ?, last_words = ?, failure_key = 'k'", [record, HOSTILE, HOSTILE]
        )
        connection.execute("UPDATE attempts SET stderr_tail = ?, place = ?, message = ?", [HOSTILE] * 3)
    (folder.trials / "good1" / "stdout").write_text(HOSTILE)
    async with page_of(browser, color_scheme=scheme, viewport={"width": 390, "height": 800}) as page:
        for path in ("trials/0", "trials/3", "trials/new?like=0", "failures", "trials"):
            await page.goto(f"{site}/experiments/seeded/{path}")
            await expect(page.locator("body")).to_contain_text("onerror")
            if path == "trials/0":
                await expect(page.locator("#log-text")).to_contain_text("onerror")
            assert "owned" not in (await page.title()).partition("·")[0] and not await is_wider_than_screen(page), path
        await page.goto("about:blank")


async def test_read_token_shows_no_buttons(browser: Browser, world: World) -> None:
    """A login with the read token."""
    await world.add("seeded")
    await world.commands.resume("seeded")
    pages = create_pages(PagesContext(commands=world.commands, version="1.2.3", analysis=world.analysis))
    application = create_application(world.context, token=TOKEN, read_token="only for reading", pages=pages)
    async with tcp_listener(application) as address:
        site, context = f"http://127.0.0.1:{address.port}", await browser.new_context()
        page = await context.new_page()
        await page.goto(f"{site}/experiments/seeded/trials/0")
        await page.get_by_label("Token of this daemon").fill("only for reading")
        await page.get_by_role("button", name="Log in").click()
        await expect(page.locator("#trial-title")).to_contain_text("Trial 0")
        for path in ("trials/0", "trials/4", "trials/new?like=0", "trials", "failures", "", "config"):
            await page.goto(f"{site}/experiments/seeded/{path}".rstrip("/"))
            assert await page.locator("form[method=post] button").count() == 0, path
        sent = "fetch('/experiments/seeded/trials/0/again', {method: 'POST'})"
        refused = await page.evaluate(f"{sent}.then(async (one) => [one.status, await one.text()])")
        assert refused[0] == 403 and "may only read" in refused[1]
        await context.close()
        world.stopping.set()
