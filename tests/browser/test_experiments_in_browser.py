"""The list of experiments, a new one, training services and several objectives in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from playwright.async_api import Browser, expect

from nni_manager.domain.experiment import ExperimentStatus
from tests.api.world import World
from tests.browser.access import faults
from tests.browser.objectives import with_objectives
from tests.browser.shared_page import opened
from tests.browser.test_charts_in_browser import LONG_MS, drawn, state_of
from tests.browser.test_pages_in_browser import is_wider_than_screen, page_of
from tests.web import gpu_service

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]


async def some(world: World) -> None:
    await world.add("first", experimentName="one", extra_trials=9)
    await world.add("second", experimentName="two", status=ExperimentStatus.DONE, extra_trials=3)
    await world.add("third", experimentName="three")
    await world.commands.label("first", {"tags": ["paper"], "notes": "with the new data"})


async def test_list_follows_events_and_filters(browser: Browser, site: str, world: World) -> None:
    await some(world)
    async with page_of(browser) as page:
        await page.goto(f"{site}/")
        await expect(page.locator("a.open")).to_have_count(3)
        await page.locator("#tick-third").check()
        await world.commands.resume("second")
        row = page.locator("tr", has=page.locator("#open-second"))
        await expect(row.locator(".badge").first).to_have_text("RUNNING", timeout=LONG_MS)
        await expect(page.locator("#tick-third")).to_be_checked()
        await expect(page.locator("#compare")).to_be_disabled()
        await page.locator("#tag").select_option("paper")
        await expect(page.locator("a.open")).to_have_text(["one"])
        assert state_of(page) == {"tag": "paper"}
        await page.go_back()
        await expect(page.locator("a.open")).to_have_count(3)
        for id_ in ("first", "second"):
            await page.locator(f"#tick-{id_}").check()
        await page.locator("#tick-third").uncheck()
        await page.locator("#compare").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Compare experiments")
        assert "ids=" in page.url and "first" in page.url and "second" in page.url


async def test_rows_are_stopped_and_archived_from_their_menu(browser: Browser, site: str, world: World) -> None:
    await some(world)
    await world.commands.resume("third")
    async with page_of(browser) as page:
        await page.goto(f"{site}/?sort=name")
        await page.locator("#more-third").click()
        await page.locator("#stop-third summary").click()
        await page.locator("#stop-third button").click()
        row = page.locator("tr", has=page.locator("#open-third"))
        await expect(row.locator(".badge")).to_have_text("STOPPED", timeout=LONG_MS)
        assert state_of(page) == {"sort": "name"}
        await page.locator("#more-third").click()
        await row.get_by_role("button", name="Archive").click()
        await expect(page.locator("a.open")).to_have_text(["one", "two"])
        await expect(page.locator(".count-line")).to_contain_text("1 archived")


async def test_file_is_uploaded_corrected_and_started(
    browser: Browser, site: str, world: World, tmp_path: Path
) -> None:
    file = tmp_path / "experiment.yml"
    file.write_text(yaml.safe_dump(world.config(trialConcurrency=0), sort_keys=False))
    async with opened(browser) as page:
        await page.goto(f"{site}/new")
        await page.set_input_files("#file", file)
        await expect(page.locator("#config")).to_have_value(re.compile("trialConcurrency: 0"))
        await page.locator("#check").click()
        line = file.read_text().splitlines().index("trialConcurrency: 0") + 1
        await expect(page.locator(".said.wrong")).to_have_text(
            re.compile(f"line {line}: trialConcurrency: must be from 1")
        )
        text = await page.locator("#config").input_value()
        await page.locator("#config").fill(text.replace("trialConcurrency: 0", "trialConcurrency: 1"))
        await page.locator("#start").click()
        await expect(page.locator(".heading .badge").first).to_have_text("RUNNING", timeout=LONG_MS)


async def test_pages_work_without_javascript(browser: Browser, site: str, world: World) -> None:
    await some(world)
    async with page_of(browser, java_script_enabled=False) as page:
        await page.goto(f"{site}/")
        await page.locator("#q").fill("data")
        await page.locator("#apply").click()
        assert await page.locator("a.open").all_inner_texts() == ["one"]
        await page.goto(f"{site}/")
        for id_ in ("first", "second"):
            await page.locator(f"#tick-{id_}").check()
        await page.locator("#compare").click()
        assert "Best and counts" in await page.inner_text("main")
        await page.goto(f"{site}/new")
        await page.locator("#config").fill(yaml.safe_dump(world.config(experimentName="by hand")))
        await page.locator("#start").click()
        assert "by hand" in await page.inner_text("h1")
        await page.goto(f"{site}/experiments/third/delete")
        await page.locator("#delete-now").click()
        assert await page.locator("#open-third").count() == 0 and await page.locator("a.open").count() == 3


async def test_new_pages_have_no_axe_violations_and_fit_a_phone(
    browser: Browser, site: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await some(world)
    gpu_service.install(monkeypatch)
    async with page_of(browser) as page:
        for file in (world.config(trainingService=gpu_service.section("hostA", "hostB")),):
            await page.goto(f"{site}/new")
            await page.locator("#config").fill(yaml.safe_dump(file))
            await page.locator("#start").click()
            await expect(page.locator("#tiles")).to_contain_text("remote", timeout=LONG_MS)
        gpu_service.occupy(world, page.url.rpartition("/")[2], "a1b2c")
        open_id = page.url.rpartition("/")[2]
        paths = ["/", "/?q=nothing", "/new", "/platforms", "/experiments/first/about", "/experiments/first/delete"]
        for path in [*paths, f"/experiments/{open_id}/credentials"]:
            await page.set_viewport_size({"width": 1400, "height": 900})
            await page.goto(f"{site}{path}")
            for theme in ("light", "dark"):
                await page.emulate_media(color_scheme=theme)
                assert await faults(page, theme) == [], f"{path} {theme}"
            await page.set_viewport_size({"width": 390, "height": 800})
            assert not await is_wider_than_screen(page), path


async def test_point_of_the_pareto_front_opens_its_trial(browser: Browser, site: str, world: World) -> None:
    await with_objectives(world, "many", 40)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/many")
        figure = await drawn(page, "pareto")
        await expect(figure.locator(".chart-title")).to_contain_text("non-dominated trials")
        labels = await figure.locator(".chart-body").evaluate("body => body.data.map(one => one.name)")
        assert labels == ["violates a constraint", "dominated", "Pareto front"]
        await figure.get_by_label("Up").select_option("size")
        await expect(figure.locator(".ytitle")).to_have_text("size (smaller is better)", timeout=LONG_MS)
        assert state_of(page) == {"oy": "size"}
        rows = page.locator("#pareto-table tbody tr")
        size = await figure.locator(".chart-body").evaluate("body => body.data.at(-1).x.length")
        assert await rows.count() == size
        await figure.locator(".chart-body").focus()
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("Enter")
        await page.wait_for_url(re.compile("/trials"), timeout=LONG_MS)
