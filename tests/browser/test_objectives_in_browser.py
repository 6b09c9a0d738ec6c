"""Charts with several objectives: each has its own direction; the first is the default."""

from __future__ import annotations

import json
import re
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, expect

from tests.api.world import World
from tests.browser.objectives import with_objectives
from tests.browser.test_charts_in_browser import LONG_MS, chart, drawn
from tests.browser.test_pages_in_browser import page_of

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

FRAME_FIRST_BAR = """() => {
  const body = document.querySelector('#chart-distribution .chart-body');
  body.emit('plotly_click', { points: [{ data: body.data[0], pointNumber: 0 }], event: {} });
}"""


async def test_each_objective_has_results_and_a_direction(browser: Browser, site: str, world: World) -> None:
    await with_objectives(world, "many", 40)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/many")
        figure = await drawn(page, "results")
        title = figure.locator(".chart-title")
        await expect(title).to_contain_text("Acc by trial, best so far", timeout=LONG_MS)
        key = page.get_by_label("result key")
        await key.select_option("ms")
        answer = json.loads(
            await page.evaluate("fetch('/api/v1/experiments/many/analysis/columns').then(one => one.text())")
        )
        (least,) = (one["min"] for one in answer["keys"] if one["name"] == "ms")
        await expect(title).to_have_text(re.compile(rf"Ms by trial, best so far {least:.6g}$"), timeout=LONG_MS)
        await key.select_option("acc")
        await expect(title).to_contain_text("Acc by trial", timeout=LONG_MS)
        assert "key" not in urlsplit(page.url).query, "defaults are not in the address"


async def test_selection_filters_by_the_objective(browser: Browser, site: str, world: World) -> None:
    await with_objectives(world, "many", 40)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/many")
        await drawn(page, "distribution")
        await expect(chart(page, "distribution").locator(".main-svg").first).to_be_visible(timeout=LONG_MS)
        await page.evaluate(FRAME_FIRST_BAR)
        await expect(page).to_have_url(re.compile(r"m\.acc="))
