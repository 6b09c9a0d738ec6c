"""Charts in a real browser: opening trials, brushes, themes, exports, keyboard, small screens."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.async_api import Browser, Locator, Page, Request, expect

from tests.api.world import World
from tests.browser.charted import charted
from tests.browser.test_pages_in_browser import is_wider_than_screen, page_of

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

CHARTS = ["results", "curves", "parallel", "effect", "importance", "pair", "distribution", "timeline"]
#: Timeout for two shared processors.
LONG_MS = 60_000
#: Pixels of the parallel coordinates: their ends, see MARGIN in parallel_axes.js.
TOP, BOTTOM = 40, 330


#: Handles `opentrial` like the drawer.
LISTEN = """() => {
  const note = event => { event.preventDefault(); opened.push(event.detail.number); };
  if (!window.opened) addEventListener("opentrial", note);
  window.opened = [];
}"""


def chart(page: Page, name: str) -> Locator:
    return page.locator(f"figure[data-chart={name}]")


async def drawn(page: Page, name: str) -> Locator:
    """A chart in view, after it is drawn or shows a message; sketches are replaced by the library's drawing."""
    figure = chart(page, name)
    await figure.scroll_into_view_if_needed()
    await expect(figure.locator(".chart-tools button")).to_have_count(3, timeout=LONG_MS)
    settled = "f => f.matches('.is-empty') || f.querySelector('.chart-sketch, .main-svg, canvas') !== null"
    handle = await figure.element_handle()
    await page.wait_for_function(settled, arg=handle, timeout=LONG_MS)
    if await figure.get_attribute("data-sketched") is not None:
        await figure.locator(".chart-body").dispatch_event("pointermove")  # like a resting pointer
        await expect(figure.locator(".chart-sketch")).to_have_count(0, timeout=LONG_MS)
    return figure


async def numbers_shown(page: Page, name: str) -> int:
    text = await (await drawn(page, name)).locator(".chart-count").inner_text()
    found = re.search(r"showing ([\d,]+)", text)
    return int(found[1].replace(",", "")) if found else 0


def state_of(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


async def trace(page: Page, name: str, label: str) -> dict[str, Any]:
    """The trace of a plotly chart with this label in the legend."""
    script = (
        "([name, label]) => { const t = document.querySelector(`figure[data-chart=${name}] .chart-body`).data"
        ".find(t => t.name.startsWith(label)); return t && {x: t.x, y: t.y, customdata: t.customdata}; }"
    )
    return dict(await page.evaluate(script, [name, label]))


async def pixel(page: Page, name: str, x: float, y: float) -> tuple[float, float]:
    """Screen position of a point in a plotly chart."""
    script = (
        "([name, x, y]) => { const b = document.querySelector(`figure[data-chart=${name}] .chart-body`);"
        " const {xaxis, yaxis, _size} = b._fullLayout, box = b.getBoundingClientRect();"
        " return [box.left + _size.l + xaxis.d2p(x), box.top + _size.t + yaxis.d2p(y)]; }"
    )
    left, top = await page.evaluate(script, [name, x, y])
    return left, top


async def drag(page: Page, begin: tuple[float, float], end: tuple[float, float]) -> None:
    await page.mouse.move(*begin)
    await page.mouse.down()
    await page.mouse.move(*end, steps=10)
    await page.mouse.up()


@pytest.mark.parametrize("count", [0, 1, 40, 1000])
async def test_every_chart_opens(browser: Browser, site: str, world: World, count: int) -> None:
    await charted(world, "charted", count)
    elsewhere: list[str] = []

    def note(request: Request) -> None:
        if not request.url.startswith((site, "data:", "blob:")):
            elsewhere.append(request.url)

    for scheme, width in (("light", 1400), ("dark", 390)):
        async with page_of(browser, color_scheme=scheme, viewport={"width": width, "height": 900}) as page:
            page.on("request", note)
            await page.goto(f"{site}/experiments/charted")
            for name in CHARTS:
                figure = await drawn(page, name)
                if not count:
                    await expect(figure.locator(".chart-words")).not_to_be_empty()
            assert not await is_wider_than_screen(page)
            assert await page.evaluate("document.querySelectorAll('img[onerror], [onclick]').length") == 0
    assert elsewhere == []


async def test_point_opens_its_trial(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 40)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/charted")
        await drawn(page, "results")
        points = await trace(page, "results", "early-stopped")
        await page.evaluate(LISTEN)
        await page.mouse.click(*await pixel(page, "results", points["x"][1], points["y"][1]))
        await page.wait_for_function("opened.length === 1")
        assert await page.evaluate("opened") == [points["customdata"][1]]
        await page.keyboard.down("Shift")
        await page.mouse.click(*await pixel(page, "results", points["x"][1], points["y"][1]))
        await page.keyboard.up("Shift")
        assert state_of(page)["selected"] == str(points["customdata"][1])


async def test_points_are_reached_by_keyboard(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 40)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/charted")
        for name in ("results", "parallel", "effect"):
            figure = await drawn(page, name)
            await page.evaluate(LISTEN)
            await figure.locator(".chart-body").focus()
            await page.keyboard.press("ArrowRight")
            spoken = figure.locator("[aria-live]")
            await expect(spoken).to_contain_text("trial")
            await page.keyboard.press("Enter")
            (number,) = await page.evaluate("window.opened")
            await expect(spoken).to_contain_text(f"trial {number}:")


async def test_brush_filters_every_chart_and_survives_a_reload(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 300)
    async with page_of(browser, viewport={"width": 1400, "height": 900}) as page:
        await page.goto(f"{site}/experiments/charted?axes=rate,dropout")
        for name in CHARTS:
            await drawn(page, name)
        before = await numbers_shown(page, "distribution")
        canvas = (await drawn(page, "parallel")).locator(".parallel-surface")
        box = await canvas.bounding_box()
        assert box is not None
        axis = (box["x"] + 44, box["y"] + TOP + 60), (box["x"] + 44, box["y"] + TOP + 160)
        await drag(page, *axis)
        await expect(page).to_have_url(re.compile("p.rate="))
        low, high = map(float, state_of(page)["p.rate"].split(".."))
        assert 1e-5 < low < high < 0.1
        chips = page.get_by_role("button", name="Remove the filter: rate")
        await expect(chips).to_be_visible()
        await chart(page, "distribution").scroll_into_view_if_needed()  # out of view it sends no requests
        await expect(chart(page, "distribution").locator(".chart-count")).not_to_contain_text(
            f"showing {before} ", timeout=LONG_MS
        )
        few = await numbers_shown(page, "distribution")
        assert 0 < few < before
        await page.reload()
        assert await numbers_shown(page, "distribution") == few
        await page.mouse.wheel(0, -10_000)
        await chips.click()
        assert "p.rate" not in state_of(page)
        await page.go_back()
        assert "p.rate" in state_of(page)


async def test_selection_in_the_distribution_filters_by_result(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 100)
    async with page_of(browser, viewport={"width": 1400, "height": 900}) as page:
        await page.goto(f"{site}/experiments/charted?clip=1")
        for name in CHARTS:
            figure = await drawn(page, name)
        figure = await drawn(page, "distribution")
        box = await figure.locator(".nsewdrag").first.bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        await drag(page, (box["x"] + 5, middle), (box["x"] + box["width"] / 2, middle))
        await expect(page).to_have_url(re.compile("m.default="))
        low, high = map(float, state_of(page)["m.default"].split(".."))
        assert 0 < low < high


async def test_controls_are_in_the_address_and_outliers_are_counted(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 300)
    async with page_of(browser, viewport={"width": 1400, "height": 900}) as page:
        await page.goto(f"{site}/experiments/charted")
        await drawn(page, "results")
        await page.get_by_label("best", exact=True).select_option("5")
        await page.get_by_label("x axis").select_option("elapsed")
        await page.get_by_label("log scale of results").check()
        await page.get_by_label("hide outliers").check()
        assert state_of(page) == {"top": "5", "x": "elapsed", "logy": "1", "clip": "1"}
        await expect(page.get_by_text(re.compile(r"hide outliers \(\d+ hidden\)"))).to_be_visible(timeout=LONG_MS)
        await expect(chart(page, "results")).to_contain_text("time since the start", timeout=LONG_MS)
        await expect(chart(page, "curves").locator(".chart-title")).to_contain_text("best 5", timeout=LONG_MS)


async def test_theme_change_redraws_charts(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 20)
    colours = "() => document.querySelector('figure[data-chart=results] .chart-body')._fullLayout.font.color"
    async with page_of(browser, color_scheme="light") as page:
        await page.goto(f"{site}/experiments/charted")
        await drawn(page, "results")
        light = await page.evaluate(colours)
        await page.locator("#theme").click()
        await page.wait_for_function(f"light => ({colours})() !== light", arg=light)


async def test_data_is_available_as_table_csv_png_and_svg(
    browser: Browser, site: str, world: World, tmp_path: Path
) -> None:
    await charted(world, "charted", 30)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/charted")
        for name in ("results", "parallel"):
            figure = await drawn(page, name)
            await figure.locator(".chart-data summary").click()
            link = figure.locator(".chart-data td a").first
            number = await link.inner_text()
            assert (await link.get_attribute("href") or "").endswith(f"/experiments/charted/trials/{number}")
            begins = {"CSV": b"trial,id,", "PNG": b"\x89PNG", "SVG": b"<svg"}
            for kind, first in begins.items():
                async with page.expect_download() as download:
                    await figure.get_by_role("button", name=f"Download as {kind}").click()
                path = tmp_path / f"{name}.{kind}"
                await (await download.value).save_as(path)
                assert path.read_bytes().startswith(first), (name, kind)
            svg = (tmp_path / f"{name}.SVG").read_text()
            assert "<img" not in svg and "<script" not in svg


async def test_idle_poll_is_answered_without_a_body(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 30)
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/charted")
        await drawn(page, "results")
        script = """async () => {
          const address = `${document.querySelector("figure[data-chart=results]").dataset.api}/results?`;
          const tag = (await fetch(address)).headers.get("ETag");
          const again = await fetch(address, {headers: {"If-None-Match": tag}});
          return [again.status, (await again.text()).length];
        }"""
        assert await page.evaluate(script) == [304, 0]


async def test_charts_without_javascript_link_their_data(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 3)
    async with page_of(browser, java_script_enabled=False) as page:
        await page.goto(f"{site}/experiments/charted")
        link = chart(page, "results").get_by_role("link")
        assert (await link.get_attribute("href") or "").endswith("/api/v1/experiments/charted/analysis/results")
        await expect(chart(page, "results")).to_contain_text("Charts need JavaScript")


async def test_brush_next_to_the_table_filters_the_table(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 120)
    async with page_of(browser, viewport={"width": 1400, "height": 900}) as page:
        await page.goto(f"{site}/experiments/charted/trials?axes=rate,dropout")
        table = page.locator("#trials-part")
        await expect(table).to_contain_text("Page 1 of 3")
        await page.get_by_text("Charts of these trials").click()
        for name in ("results", "distribution"):  # from now on their answers do not change heights
            await drawn(page, name)
        box = await (await drawn(page, "parallel")).locator(".parallel-surface").bounding_box()
        assert box is not None
        await drag(page, (box["x"] + 44, box["y"] + TOP + 10), (box["x"] + 44, box["y"] + TOP + 40))
        await expect(page).to_have_url(re.compile("p.rate="))
        await expect(table).not_to_contain_text("Page 1 of 3", timeout=LONG_MS)
        await expect(page.locator("#charts-beside")).to_have_attribute("open", "")


async def test_charts_follow_a_brush_quickly_with_10000_trials(browser: Browser, site: str, world: World) -> None:
    """They take half a second on an idle machine; the limit is much longer."""
    await charted(world, "charted", 10_000, steps=4)  # many trials with few results each
    async with page_of(browser, viewport={"width": 1400, "height": 900}) as page:
        await page.goto(f"{site}/experiments/charted")
        await drawn(page, "parallel")
        assert await numbers_shown(page, "results") < 5000
        script = """async () => {
          const {state} = await import(new URL("static/state.js", document.baseURI.split("experiments/")[0]).href);
          const drawn = new Promise(done => document.addEventListener("chartanswer", done, {once: true}));
          const began = performance.now();
          state.set({"p.rate": "0.0001..0.01"});
          await drawn;
          return performance.now() - began;
        }"""
        assert await page.evaluate(script) < 10_000
        await expect(chart(page, "results").locator(".chart-count")).not_to_contain_text("10,005", timeout=LONG_MS)


async def test_each_axis_is_logarithmic_by_button_and_by_key(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 40)
    axes = "() => { const {xaxis, yaxis} = document.querySelector('#chart-results .chart-body')._fullLayout;"
    types = f"{axes} return [xaxis.type, yaxis.type].join(); }}"
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/charted")
        figure = await drawn(page, "results")
        assert await page.evaluate(types) == "linear,linear"
        across, up = (figure.get_by_role("button", name=f"log {axis}") for axis in "xy")
        await across.click()
        await page.wait_for_function(f"({types})() === 'log,linear'")
        assert state_of(page) == {"logx": "1"}
        await expect(figure.locator(".chart-title")).to_contain_text("log axis: 1 not above zero hidden")
        await figure.locator(".chart-body").focus()
        await page.keyboard.press("l")
        await page.wait_for_function(f"({types})() === 'log,log'")
        await expect(up).to_have_attribute("aria-pressed", "true")
        await expect(page.get_by_label("log scale of results")).to_be_checked()
        await page.keyboard.press("Shift+L")
        await page.wait_for_function(f"({types})() === 'linear,log'")
        assert state_of(page) == {"logy": "1"}
        await page.reload()
        await drawn(page, "results")
        assert await page.evaluate(types) == "linear,log"
        await page.get_by_label("x axis").select_option("clock")
        await expect(across).to_be_hidden()  # a clock axis cannot be logarithmic
        await expect(up).to_be_visible()


async def test_charts_count_values_hidden_by_a_log_axis(browser: Browser, site: str, world: World) -> None:
    folder = await charted(world, "charted", 40)
    with contextlib.closing(sqlite3.connect(folder.database)) as connection, connection:
        connection.execute("UPDATE trials SET final_value = -final_value WHERE sequence_id BETWEEN 10 AND 12")
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/charted?logy=1&logstep=1")
        for name in ("results", "curves", "parallel", "effect", "distribution"):
            await chart(page, name).scroll_into_view_if_needed()
            count = r"\d+" if name in ("curves", "effect") else "3"
            title = chart(page, name).locator(".chart-title")
            await expect(title).to_contain_text(re.compile(rf"log axis: {count} not above zero hidden"))
        bins = "() => Math.min(...document.querySelector('#chart-distribution .chart-body').data[0].x)"
        assert await page.evaluate(bins) > 0


async def test_trial_card_is_pinned(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 40)
    async with page_of(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        await page.goto(f"{site}/experiments/charted")
        figure = await drawn(page, "results")
        points = await trace(page, "results", "early-stopped")
        place = await pixel(page, "results", points["x"][1], points["y"][1])
        card = figure.locator(".chart-pin")
        number = str(points["customdata"][1])
        await page.keyboard.down("Alt")
        await page.mouse.click(*place)
        await page.keyboard.up("Alt")
        await expect(card.get_by_role("link", name=f"Trial {number}")).to_have_attribute(
            "href", re.compile(rf"/trials/{number}$")
        )
        await expect(card.locator("dt").first).to_have_text("rate")
        await card.get_by_role("button", name="copy parameters").click()
        copied = json.loads(await page.evaluate("navigator.clipboard.readText()"))
        assert 1e-5 < copied["rate"] < 0.1 and set(copied["layer"]) > {"_name"}
        await page.get_by_label("best", exact=True).select_option("5")  # the chart is redrawn below it
        await expect(card).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(card).to_have_count(0)
        body = figure.locator(".chart-body")
        await body.focus()
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("p")
        await expect(card).to_be_focused()
        await expect(card.locator("dd").first).to_be_visible()
        await card.get_by_role("button", name="Close").click()
        await expect(body).to_be_focused()


async def test_charts_use_at_most_a_fortieth_of_the_time(browser: Browser, site: str, world: World) -> None:
    """Even instant drawings count, because their answers cost the manager time."""
    await charted(world, "charted", 1)
    script = """async () => {
      const {pace} = await import(new URL("static/charts/pace.js", document.baseURI.split("experiments/")[0]).href);
      const waits = [];
      for (const ms of [1, 60, 50, 100_000]) {
        pace.spent(ms);
        waits.push(Math.ceil(pace.wait / 100) * 100);
      }
      return waits;
    }"""
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/charted/config")
        assert await page.evaluate(script) == [1600, 4000, 6000, 10_000]


async def test_unchanged_answer_is_not_redrawn(browser: Browser, site: str, world: World) -> None:
    """A waiting trial changes the experiment, but not its curves."""
    async with httpx.AsyncClient(base_url=site, trust_env=False) as api, page_of(browser) as page:
        id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
        await page.goto(f"{site}/experiments/{id_}")
        figure = await drawn(page, "curves")
        await expect(figure.locator(".chart-words")).not_to_be_empty()
        note = "({target}) => { drawn += target.id === 'chart-curves'; }"
        await page.evaluate(f"() => {{ window.drawn = 0; document.addEventListener('chartanswer', {note}); }}")
        async with page.expect_response(lambda answer: "/analysis/curves" in answer.url and answer.status == 200):
            await api.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": 0.5}})
        await expect(page.locator("#tile-progress + .value")).to_contain_text("0 of")
        assert await page.evaluate("drawn") == 0
        await page.goto("about:blank")
