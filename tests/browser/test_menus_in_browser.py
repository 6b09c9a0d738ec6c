"""Menus are fully visible at any position of their button, and return the focus; a log starts at its end."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from playwright.async_api import Browser, Locator, expect

from tests.api.world import World
from tests.browser.test_pages_in_browser import is_wider_than_screen, page_of

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

#: Whether an element is in the window, and its corners are neither covered nor clipped.
IS_WHOLE = """element => {
  const { left, top, right, bottom } = element.getBoundingClientRect();
  const corners = [[left + 9, top + 9], [right - 9, top + 9], [left + 9, bottom - 9], [right - 9, bottom - 9]];
  return corners.every(([x, y]) => element.contains(document.elementFromPoint(x, y)));
}"""
IS_AT_END = "() => { const log = document.querySelector('#log-text'); \
return log.scrollTop > 0 && log.scrollHeight - log.scrollTop - log.clientHeight < 2; }"
NAME = "a_long_name_of_an_experiment_" * 10


async def becomes_whole(menu: Locator) -> None:
    """Looks the element up each time: an update of the page may replace it."""
    async with asyncio.timeout(30):
        while not await menu.evaluate(IS_WHOLE):  # noqa: ASYNC110 (the page tells nothing)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("experiments", [1, 12])
async def test_menu_of_the_last_experiment_is_fully_visible(
    browser: Browser, site: str, world: World, width: int, experiments: int
) -> None:
    for number in range(experiments):
        await world.add(f"listed{number:02d}", experimentName=f"number {number:02d}")
    async with page_of(browser, viewport={"width": width, "height": 700}) as page:
        await page.goto(f"{site}/?sort=name")
        last = page.locator(".list tbody tr").last.locator("details.menu")
        await last.locator("summary").first.click()
        await becomes_whole(last.locator("ul"))
        assert not await is_wider_than_screen(page)
        await page.mouse.wheel(0, -60)  # it stays next to its button
        await becomes_whole(last.locator("ul"))
        await page.keyboard.press("Escape")
        await expect(last.locator("ul")).to_be_hidden()
        await expect(last.locator("summary").first).to_be_focused()


async def test_menu_of_the_only_experiment_is_visible_without_scripts(
    browser: Browser, site: str, world: World
) -> None:
    await world.add("seeded")
    async with page_of(browser, java_script_enabled=False, is_alone=True) as page:
        await page.goto(site)
        menu = page.locator("#menu-seeded")
        await menu.locator("summary").first.click()
        below = await menu.locator("ul").bounding_box()
        box = await page.locator("#list-table").bounding_box()
        assert below is not None and box is not None
        assert below["y"] + below["height"] <= box["y"] + box["height"]


async def test_kill_confirmation_of_the_last_trial_is_fully_visible(browser: Browser, site: str, world: World) -> None:
    async with httpx.AsyncClient(base_url=site, trust_env=False) as api:
        id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
        added = (await api.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": 0.5}})).json()["id"]
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/{id_}/trials")
        await page.locator(f"#kill-{added}").click()
        await becomes_whole(page.locator(f"#kill-details-{added} .panel"))
        await page.goto("about:blank")


@pytest.mark.parametrize("width", [1280, 700, 390])
async def test_menu_of_other_experiments_fits_with_long_names(
    browser: Browser, site: str, world: World, width: int
) -> None:
    await world.add("other", experimentName=NAME)
    await world.add("seeded", experimentName=NAME)
    async with page_of(browser, viewport={"width": width, "height": 900}) as page:
        await page.goto(f"{site}/experiments/seeded/config")
        await page.locator("#switch").click()
        await expect(page.locator("#others a")).to_be_visible()
        await becomes_whole(page.locator("#switcher .panel"))
        assert not await is_wider_than_screen(page)
        name, arrow = [await page.locator(part).bounding_box() for part in ("#switch span", "#switch")]
        assert name is not None and arrow is not None
        assert name["x"] + name["width"] < arrow["x"] + arrow["width"], "the arrow is next to the shortened name"
        await expect(page.locator("#find-experiment")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.locator("#switcher .panel")).to_be_hidden()
        await expect(page.locator("#switch")).to_be_focused()


async def test_log_starts_at_its_end_and_stays_there(browser: Browser, site: str, world: World) -> None:
    folder = await world.add("seeded")
    log = folder.log / "nnimanager.log"
    lines = [f"[2026-11-28 10:00:00] INFO (nni) line {number}" for number in range(300)]
    log.write_text("\n".join(lines) + "\n")
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/seeded/log")
        await expect(page.locator("#log-text > div")).to_have_count(200)
        assert await page.locator("#log-text").evaluate("log => log.innerText.includes('\\n\\n')") is False
        heights = "all => [all[1].getBoundingClientRect().top, all[0].getBoundingClientRect().bottom]"
        second, first = await page.locator("#log-text > div").evaluate_all(heights)
        assert abs(second - first) < 1, "nothing is between two lines"
        await page.wait_for_function(IS_AT_END)
        refresh = "async () => { await (await import('/static/live.js')).live.refresh(); }"
        log.write_text("\n".join([*lines, "[2026-11-28 10:00:01] ERROR (nni) the newest"] + ["more"] * 3) + "\n")
        await page.evaluate(refresh)
        await expect(page.locator("#log-text")).to_contain_text("the newest")
        await page.wait_for_function(IS_AT_END)
        await page.locator("#log-text").evaluate("log => log.scrollTo(0, 100)")
        await page.wait_for_function("() => document.querySelector('#log-text').scrollTop === 100")
        log.write_text("\n".join([*lines, "later still"]) + "\n")
        await page.evaluate(refresh)
        await expect(page.locator("#log-text")).to_contain_text("later still")
        assert await page.locator("#log-text").evaluate("log => log.scrollTop") == 100, "scrolling up stops following"
