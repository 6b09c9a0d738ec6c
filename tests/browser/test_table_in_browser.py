"""The table of trials and related pages in a real browser: filter, columns, keys, drawer, themes, accessibility."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from itertools import product
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from tests.api.world import World
from tests.browser.access import serious_faults
from tests.browser.test_pages_in_browser import is_wider_than_screen, page_of, put_on_hold

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]  # the scope of the browser

SPACE = {
    "x": {"_type": "uniform", "_value": [0, 1]},
    "layer": {
        "_type": "choice",
        "_value": [{"_name": "conv", "size": {"_type": "choice", "_value": [3, 5]}}, {"_name": "pool"}],
    },
}
EVIL = "<img src=x onerror=alert(1)>'\"</script>"
TABS = ("", "/trials", "/failures", "/config", "/log", "/edit", "/compare?selected=0,3,7")


async def seeded(world: World, trials: int = 60) -> None:
    """An experiment with NaN, infinite and dict results, a nested space, and trials with every status."""
    folder = await world.add("seeded", extra_trials=trials, searchSpace=SPACE, maxTrialNumber=trials + 20)
    with contextlib.closing(sqlite3.connect(folder.database)) as connection, connection:
        for id, number in connection.execute("SELECT id, sequence_id FROM trials WHERE id LIKE 'e%'").fetchall():
            layer = {"_name": "conv", "size": 3 + 2 * (number % 4 == 1)} if number % 2 else {"_name": "pool"}
            record = {"parameters": {"x": number / 100, "layer": layer}, "parameter_source": "algorithm"}
            status = "EARLY_STOPPED" if number % 10 == 9 else "SUCCEEDED"
            connection.execute(
                "UPDATE trials SET record = ?, status = ?, final_value = ?, final_data = ? WHERE id = ?",
                (json.dumps(record), status, number / 7, json.dumps({"default": number / 7, "loss": 1e-9}), id),
            )


async def numbers(page: Page) -> list[str]:
    return await page.locator("[data-trial]").evaluate_all("rows => rows.map(row => row.dataset.trial)")


@pytest.mark.parametrize("trials", [0, 40, 1000])
async def test_every_page_loads_only_from_this_host(browser: Browser, site: str, world: World, trials: int) -> None:
    await seeded(world, trials)
    async with page_of(browser) as page:
        hosts: set[str] = set()
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        for tab in TABS:
            await page.goto(f"{site}/experiments/seeded{tab}")
            await expect(page.get_by_role("heading", level=1)).to_contain_text("digits")
        assert hosts == {urlsplit(site).netloc}


async def test_filter_form_fills_the_address_and_the_table(browser: Browser, site: str, world: World) -> None:
    await seeded(world)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/seeded/trials?sort=number&limit=200")
        await page.get_by_text("Parameters and results").click()
        await page.get_by_label("x from").fill("1e-1")
        await page.get_by_label("x to").fill("0.12")
        await page.get_by_role("button", name="Filter").click()
        await expect(page.locator("[data-trial]")).to_have_count(3)
        assert await numbers(page) == ["10", "11", "12"], "both ends are included"
        assert "p.x=1e-1..0.12" in page.url and "low" not in page.url
        await page.locator("fieldset", has_text="layer.size").get_by_label("3").check()
        await page.get_by_role("button", name="Filter").click()
        await expect(page.locator("[data-trial]")).to_have_count(1)
        await page.reload()
        await expect(page.locator("[data-trial]")).to_have_count(1)
        await page.locator("#tabs").get_by_role("link", name="Overview").click()
        await expect(page.locator("#filtered")).to_contain_text("p.x = 0.1..0.12")
        await page.go_back()
        await page.locator("#clear").click()
        await expect(page.locator("[data-trial]")).to_have_count(65)


async def test_tables_and_forms_work_without_scripts(browser: Browser, site: str, world: World) -> None:
    await seeded(world)
    async with page_of(browser, java_script_enabled=False) as page:
        await page.goto(f"{site}/experiments/seeded/trials")
        await page.locator("#status-FAILED").check()
        await page.locator("#status-WAITING").check()
        await page.get_by_role("button", name="Filter").click()
        await expect(page).to_have_url(re.compile("status="))
        assert sorted(await page.locator("tbody .open").all_text_contents()) == ["3", "4"]
        await page.locator("#tick-3").check()
        await page.locator("#tick-4").check()
        await page.get_by_role("button", name="Compare ticked").click()
        await expect(page.locator("#compared thead")).to_contain_text("fails")
        await page.get_by_role("link", name="Log").click()
        await page.get_by_label("Search", exact=True).fill("TWO")
        await page.get_by_role("button", name="Show").click()
        await expect(page.locator("#log-text")).to_have_text(re.compile(r"^\s*two\s*$"))


async def test_selected_columns_are_stored(browser: Browser, site: str, world: World) -> None:
    await seeded(world)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/seeded/trials")
        await page.locator("#choose").click()
        for name in ("place", "duration", "p.layer.size"):
            await page.locator(f'[id="c-{name}"]').uncheck()
        await page.get_by_role("button", name="Show these").click()
        await expect(page.locator("#sort-place")).to_have_count(0)
        assert "columns=" in page.url
        await page.goto(f"{site}/experiments/seeded/trials")
        await expect(page.locator("#sort-place")).to_have_count(0)
        await expect(page.locator("#sort-result")).to_be_visible()
        await page.locator("#choose").click()
        await page.locator("#default-columns").click()
        await expect(page.locator("#sort-place")).to_have_count(1)


async def headings(page: Page) -> list[str]:
    return await page.locator("th[scope=col] a").evaluate_all("links => links.map(link => link.id.slice(5))")


async def test_columns_are_reordered_and_resized(browser: Browser, site: str, world: World) -> None:
    await seeded(world, 5)
    async with page_of(browser, viewport={"width": 1400, "height": 900}) as page:
        await page.goto(f"{site}/experiments/seeded/trials?columns=number,status,result,p.x")
        await page.locator("#sort-result").press("Shift+ArrowLeft")
        await expect(page.locator("#sort-result")).to_be_focused()
        await page.wait_for_function("() => document.querySelector('#sort-result').closest('th').cellIndex === 2")
        assert await headings(page) == ["number", "result", "status", "p.x"] and "number%2Cresult" in page.url
        await page.locator('[id="sort-p.x"]').drag_to(page.locator("#sort-result"))
        await page.wait_for_function("() => document.querySelector('#sort-result').closest('th').cellIndex === 3")
        heading = page.locator("th", has=page.locator("#sort-status"))
        await page.locator("#sort-status").press("+")  # then the other columns take only the width that they need
        await page.wait_for_function("() => document.querySelector('table.trials').offsetWidth < 1200")
        box = await heading.bounding_box()
        assert box is not None
        await page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 5)
        await page.mouse.down()
        await page.mouse.move(box["x"] + box["width"] + 97, box["y"] + 5, steps=4)
        await page.mouse.up()
        for _ in range(2):  # now, and after a reload
            await expect(page.locator("[data-trial]")).to_have_count(10)
            wider = await heading.bounding_box()
            assert wider is not None and abs(wider["width"] - box["width"] - 100) < 5
            assert await headings(page) == ["number", "p.x", "result", "status"]
            await page.goto(f"{site}/experiments/seeded/trials")
            await page.wait_for_function("() => document.querySelectorAll('th[scope=col] a').length === 4")


async def test_other_experiments_are_found_by_typing(browser: Browser, site: str, world: World) -> None:
    await seeded(world, 0)
    for number in range(33):
        await world.add(f"other{number:02d}", experimentName=f"search {number}")
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/seeded/config")
        await page.locator("#switch").click()
        await expect(page.locator("#find-experiment")).to_be_focused()
        await expect(page.locator("#others a")).to_have_count(29)  # this one is among the newest thirty
        await page.keyboard.type("ARCH 1")
        await expect(page.locator("#others a")).to_have_count(11)
        await page.keyboard.type("7")
        await expect(page.locator("#others a")).to_have_count(1)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("search 17")
        await page.goto("about:blank")


async def test_keys_select_tick_and_open_rows(browser: Browser, site: str, world: World) -> None:
    await seeded(world)
    async with page_of(browser, viewport={"width": 1400, "height": 900}) as page:
        await page.goto(f"{site}/experiments/seeded/trials?sort=number")
        await expect(page.locator("[data-trial]")).to_have_count(50)
        for key in ("j", "j", "k", "x", "j"):
            await page.keyboard.press(key)
        await expect(page).to_have_url(re.compile("selected=0"))
        await expect(page.locator(".is-current")).to_have_attribute("data-trial", "1")
        await page.keyboard.press("Enter")
        await expect(page.locator("#drawer")).to_contain_text("nannn")
        await expect(page).to_have_url(re.compile("trial=1"))
        await page.reload()
        await expect(page.locator("#drawer")).to_contain_text("nannn")
        await page.keyboard.press("Escape")
        await expect(page.locator("#drawer")).to_be_hidden()
        await expect(page.locator("#tick-0")).to_be_checked()
        await page.keyboard.press("/")
        await page.keyboard.type("fails")
        await page.keyboard.press("Enter")
        await expect(page.locator("[data-trial]")).to_have_count(1)
        await page.locator("h1").click()
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await page.keyboard.press("g")
        await page.keyboard.press("c")
        await expect(page).to_have_url(re.compile("/config$"))


async def test_two_trials_are_ticked_before_comparing(browser: Browser, site: str, world: World) -> None:
    await seeded(world, 0)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/seeded/trials?selected=0&sort=number")
        await expect(page.locator("#compare")).to_be_disabled()
        await page.locator("#tick-1").check()
        await expect(page.locator("#compare-words")).to_have_text("2 ticked")
        await page.locator("#tick-0").uncheck()
        await expect(page.locator("#compare")).to_be_disabled()
        await page.locator("#tick-2").check()
        await page.locator("#compare").click()
        await expect(page.locator("#compare-table thead a")).to_have_text(["1", "2"])
        await page.goto("about:blank")


async def test_several_trials_are_killed_after_confirmation(browser: Browser, site: str, world: World) -> None:
    async with httpx.AsyncClient(base_url=site, trust_env=False) as api:
        id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
        for value in (0.1, 0.2, 0.3):
            await api.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": value}})
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/{id_}/trials")
        await page.locator("#tick-0").check()
        await page.locator("#tick-2").check()
        await page.locator("#kill-some").click()
        await page.locator("#kill-ticked-now").click()
        await expect(page.locator("tbody .user_canceled")).to_have_count(2, timeout=30_000)
        await expect(page.locator('[data-trial="1"] .user_canceled')).to_have_count(0)
        await page.goto("about:blank")


async def test_limits_change_after_old_and_new_are_shown(browser: Browser, site: str, world: World) -> None:
    async with httpx.AsyncClient(base_url=site, trust_env=False) as api:
        id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
        async with page_of(browser) as page:
            await page.goto(f"{site}/experiments/{id_}")
            await page.locator("#edit").click()
            await page.get_by_label("maxTrialNumber").fill("25")
            await page.get_by_role("button", name="Continue").click()
            await expect(page.locator(".edit tbody td")).to_have_text(["10", "25"])
            await page.get_by_role("button", name="Change").click()
            await expect(page.locator("#tile-progress + .value")).to_contain_text("of 25")
            await page.goto("about:blank")
        assert (await api.get(f"/api/v1/experiments/{id_}")).json()["maxTrialNumber"] == 25


async def test_theme_is_switched_and_stored(browser: Browser, site: str, world: World) -> None:
    await seeded(world, 0)
    async with page_of(browser, color_scheme="light") as page:
        await page.goto(f"{site}/experiments/seeded/config")
        ground = "getComputedStyle(document.body).backgroundColor"
        light = await page.evaluate(ground)
        await page.locator("#theme").click()
        dark = await page.evaluate(ground)
        await page.reload()
        assert dark != light and await page.evaluate(ground) == dark
        await page.locator("#theme").click()
        await page.emulate_media(color_scheme="dark")
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")  # follows the system again


async def test_offline_is_shown_and_recovered_from(browser: Browser, site: str, world: World) -> None:
    async with httpx.AsyncClient(base_url=site, trust_env=False) as api:
        id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(f"{site}/experiments/{id_}/trials")
        await expect(page.locator("#updated")).to_have_text("up to date")
        await context.set_offline(True)
        await expect(page.locator("#connection")).to_be_visible()
        added = (await api.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": 0.5}})).json()
        await context.set_offline(False)
        await expect(page.locator("#connection")).to_be_hidden(timeout=20_000)
        await expect(page.locator("tbody")).to_contain_text(added["id"], timeout=20_000)
        await context.close()


async def test_stored_text_injects_nothing(browser: Browser, site: str, world: World) -> None:
    folder = await world.add("seeded", experimentName=EVIL, searchSpace={EVIL: {"_type": "uniform", "_value": [0, 1]}})
    with contextlib.closing(sqlite3.connect(folder.database)) as connection, connection:
        record = {"parameters": {EVIL: EVIL, "x": {EVIL: 1}}, "parameter_source": "algorithm"}
        result = json.dumps({"default": 1, EVIL: 2})
        connection.execute("UPDATE trials SET record = ?, last_words = ?", (json.dumps(record), EVIL))
        connection.execute("UPDATE trials SET final_data = ? WHERE status = 'SUCCEEDED'", (result,))
    async with page_of(browser) as page:
        for tab in (*TABS, "/trials?q=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E"):
            await page.goto(f"{site}/experiments/seeded{tab}")
            await expect(page.get_by_role("heading", level=1)).to_contain_text("<img")
            assert await page.locator("img").count() == 0, tab


async def test_pages_have_no_serious_accessibility_violation(browser: Browser, site: str, world: World) -> None:
    """In both themes, on a screen and on a phone."""
    await seeded(world, 25)
    await put_on_hold(world, "seeded")
    async with page_of(browser) as page:
        for tab in (tab.replace("/trials", "/trials?sort=number&limit=10") for tab in TABS):  # trials of every status
            await page.goto(f"{site}/experiments/seeded{tab}")
            await expect(page.get_by_role("heading", level=1)).to_contain_text("digits")
            if "limit" in tab:
                await expect(page.locator("[data-trial]")).to_have_count(10)
            for width, scheme in product((1280, 390), ("light", "dark")):
                await page.set_viewport_size({"width": width, "height": 900})
                await page.emulate_media(color_scheme=scheme)
                assert await serious_faults(page, scheme) == [], (tab, width, scheme)
                assert not await is_wider_than_screen(page), (tab, width)
        await page.goto("about:blank")
