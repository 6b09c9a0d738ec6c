"""Texts of charts: selected trials, and reasons for empty charts."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3

import pytest
from playwright.async_api import Browser, Route, expect

from tests.api.world import World
from tests.browser.charted import SEEDED, charted, record
from tests.browser.shared_page import opened
from tests.browser.test_charts_in_browser import LONG_MS, chart, drawn
from tests.browser.test_pages_in_browser import page_of

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

_WITHOUT_RESULTS = {
    "results": "No trial has a result.",
    "curves": "No trial has an intermediate result.",
    "parallel": "No trial has a result.",
    "effect": "No trial has a result.",
    "importance": "Importance needs at least 10 trials with a result; there are 0.",
    "pair": "No trial has a result.",
    "distribution": "No trial has a result.",
}


async def test_ticked_and_opened_trials_have_curves(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 40)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/charted/trials/14?selected=9,6&top=1")
        figure = await drawn(page, "curves")
        await expect(figure.locator(".main-svg").first).to_be_visible(timeout=LONG_MS)
        names = await figure.locator(".chart-body").evaluate("body => body.data.map(({name}) => name)")
        assert {"trial 6", "trial 9", "trial 14"} <= set(names)
        await expect(figure.locator(".chart-title")).to_contain_text("3 selected")


async def test_charts_without_results_have_a_message(browser: Browser, site: str, world: World) -> None:
    folder = await charted(world, "charted", 15, steps=0)
    with contextlib.closing(sqlite3.connect(folder.database)) as connection, connection:
        connection.execute("UPDATE trials SET final_data = NULL, final_value = NULL, status = 'FAILED'")
        connection.execute("UPDATE trials SET intermediates = 0, last_value = NULL")
        connection.execute("DELETE FROM metrics")
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/charted")
        for name, words in _WITHOUT_RESULTS.items():
            figure = await drawn(page, name)
            await expect(figure.locator(".chart-words")).to_have_text(words, timeout=LONG_MS)
        trials = f"showing 0 of {15 + SEEDED} trials"
        await expect(chart(page, "curves").locator(".chart-count")).to_contain_text(trials)


async def test_pair_chart_with_one_parameter_has_a_message(browser: Browser, site: str, world: World) -> None:
    folder = await world.add("seeded")
    with contextlib.closing(sqlite3.connect(folder.database)) as connection, connection:
        connection.execute("UPDATE trials SET record = ?", (record(0, {"x": 0.5}),))
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/seeded")
        figure = chart(page, "pair")
        await figure.scroll_into_view_if_needed()
        words = "This chart needs two parameters; this experiment has one."
        await expect(figure.locator(".chart-words")).to_have_text(words, timeout=LONG_MS)


async def test_unanswered_request_is_reported_on_the_chart(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 10)

    async def lost(route: Route) -> None:
        await route.abort("connectionrefused")

    async with opened(browser) as page:
        await page.route(re.compile("analysis/distribution"), lost)
        await page.goto(f"{site}/experiments/charted")
        figure = chart(page, "distribution")
        await figure.scroll_into_view_if_needed()
        words = "This chart is not up to date: the manager did not answer"
        await expect(figure.locator(".chart-words")).to_have_text(words, timeout=LONG_MS)
        await page.unroute_all(behavior="ignoreErrors")


async def test_result_bars_end_before_the_colour_scale(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 1)
    script = """async () => {
      const root = document.baseURI.split("experiments/")[0];
      const {drawCounts} = await import(new URL("static/charts/parallel_drawing.js", root).href);
      const widths = [];
      const pen = {fillRect: (x, y, width) => widths.push(width)};
      const axes = [{name: "x", x: 44}, {name: "result", x: 1316}];
      drawCounts(pen, {axes, top: 40, bottom: 330, step: 1272}, [{axis: "result", counts: [5, 10]}], {muted: "#888"});
      return widths;
    }"""
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/charted/config")
        assert await page.evaluate(script) == [20, 40]


#: Whether the text of a bar overlaps a name next to the bars.
_COLLIDES = """() => {
  const all = kind => [...document.querySelectorAll(`#chart-importance ${kind} text`)];
  const boxes = kind => all(kind).map(one => one.getBoundingClientRect());
  return boxes('.ytick').some(name => boxes('.bars').some(share =>
    share.left < name.right + 2 && share.top < name.bottom && name.top < share.bottom));
}"""


@pytest.mark.parametrize("width", [390, 1400])
async def test_small_shares_are_outside_their_bars(browser: Browser, site: str, world: World, width: int) -> None:
    await charted(world, "charted", 20)
    shares = {"learning_rate": 0.571, "momentum": 0.36, "batch": 0.036, "optimizer": 0.033}
    importances = [{"name": name, "value": share} for name, share in shares.items()]
    answer = json.dumps({"state": "ready", "sentence": "PED-ANOVA of 20 trials", "importances": importances})

    async def answered(route: Route) -> None:
        await route.fulfill(body=answer, content_type="application/json")

    async with page_of(browser, viewport={"width": width, "height": 900}) as page:
        await page.route(re.compile("analysis/importance"), answered)
        await page.goto(f"{site}/experiments/charted")
        figure = await drawn(page, "importance")
        await expect(figure.locator(".bars text")).to_have_count(4, timeout=LONG_MS)
        assert not await page.evaluate(_COLLIDES)
        ticks = await figure.locator(".xtick text").all_text_contents()
        assert "0 %" in ticks and all(text.endswith(" %") for text in ticks)
        await page.unroute_all(behavior="ignoreErrors")


async def test_log_axis_of_the_pair_chart_has_whole_values(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 40)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/charted?a=rate&b=dropout")
        figure = await drawn(page, "pair")
        await expect(figure.locator(".xtick text").first).to_be_visible(timeout=LONG_MS)
        ticks = await figure.locator(".xtick text").all_text_contents()
        assert [float(text) for text in ticks] == [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
