"""Layout with long, large, many or oddly named values."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from pathlib import Path

import pytest
from playwright.async_api import Browser, Route, expect

from tests.api.world import World
from tests.browser.charted import charted
from tests.browser.test_charts_in_browser import LONG_MS, chart, drawn
from tests.browser.test_pages_in_browser import is_wider_than_screen, page_of

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

#: Whether a result overlaps its bar or leaves its cell.
OUTSIDE = """() => [...document.querySelectorAll('td.result')].some(cell => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  const words = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (words.nextNode()) if (words.currentNode.data.trim()) range.selectNode(words.currentNode);
  const [text, around, bar] = [range, cell, cell.querySelector('meter')].map(one => one?.getBoundingClientRect());
  return text.right > around.right || (bar && (text.left < bar.right || text.top >= bar.bottom));
})"""
#: Whether two names next to the bars overlap.
OVERLAP = """() => {
  const all = [...document.querySelectorAll('#chart-importance .ytick text')].map(one => one.getBoundingClientRect());
  all.sort((one, other) => one.top - other.top);
  return all.length < 50 || all.some((one, at) => at && one.top < all[at - 1].bottom - 2);
}"""


async def test_long_results_stay_in_their_column(browser: Browser, site: str, world: World) -> None:
    folder = await charted(world, "charted", 10)
    with contextlib.closing(sqlite3.connect(folder.database)) as connection, connection:
        connection.execute("UPDATE trials SET final_data = '-123456789.5', final_value = -123456789.5")
    async with page_of(browser, viewport={"width": 900, "height": 800}) as page:
        await page.goto(f"{site}/experiments/charted/trials?status=SUCCEEDED")
        await expect(page.locator("td.result").first).to_contain_text("-1.23457e+08")
        assert not await page.evaluate(OUTSIDE)


async def test_long_name_does_not_widen_pages(browser: Browser, site: str, world: World, tmp_path: Path) -> None:
    await world.add("seeded", experimentName="long" * 100)
    async with page_of(browser) as page:
        report = await page.request.get(f"{site}/api/v1/experiments/seeded/report")
        (tmp_path / "report.html").write_bytes(await report.body())
        pages = [f"{site}{path}" for path in ("/", "/experiments/seeded", "/experiments/seeded/about")]
        for address in [*pages, (tmp_path / "report.html").as_uri()]:
            await page.goto(address)
            assert not await is_wider_than_screen(page), address


async def test_importance_labels_of_fifty_parameters_do_not_overlap(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 20)
    answer = {
        "state": "computing",
        "sentence": "PED-ANOVA of 20 trials with a result",
        "importances": [{"name": f"parameter_{at}", "value": 1 / 50} for at in range(50)],
    }

    async def answered(route: Route) -> None:
        await route.fulfill(body=json.dumps(answer), content_type="application/json")

    async with page_of(browser) as page:
        await page.route(re.compile("analysis/importance"), answered)
        await page.goto(f"{site}/experiments/charted")
        await chart(page, "importance").scroll_into_view_if_needed()
        words = chart(page, "importance").locator(".chart-words")
        await expect(words).to_have_text("Computing the importance of parameters.", timeout=LONG_MS)
        answer["state"] = "ready"
        await page.reload()
        await drawn(page, "importance")
        assert not await page.evaluate(OVERLAP)
        await page.unroute_all()


async def test_parameter_named_like_an_object_property_is_offered(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 20)
    offered = """async () => {
      const { choosing } = await import('/static/charts/choosing.js');
      const menu = choosing(document.querySelector('#chart-pair'), 'Test', {}, () => {});
      menu.offer(['__proto__', 'constructor'], '__proto__');
      return [...menu.control.options].map(option => option.textContent);
    }"""
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/charted")
        assert await page.evaluate(offered) == ["__proto__", "constructor"]
