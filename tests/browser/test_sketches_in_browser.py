"""The overview's first charts, which are sketches until the first interaction: the library takes seconds to start."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from nni_manager.domain import formats
from tests.api.world import World
from tests.browser.charted import charted
from tests.browser.objectives import with_objectives
from tests.browser.shared_page import opened
from tests.browser.test_charts_in_browser import LISTEN, LONG_MS, chart, drawn, state_of
from tests.browser.test_pages_in_browser import is_wider_than_screen, page_of

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

_LAPTOP = {"width": 1400, "height": 900}
_LIBRARY = re.compile("plotly[^/]*js")


def asked_for(page: Page) -> list[str]:
    """Requests for the library from now on."""
    found: list[str] = []
    page.on("request", lambda request: found.append(request.url) if _LIBRARY.search(request.url) else None)
    return found


async def sketch(page: Page, name: str) -> Locator:
    found = chart(page, name).locator("svg.chart-sketch")
    await expect(found).to_be_visible(timeout=LONG_MS)
    return found


async def place_of_a_point(page: Page) -> tuple[float, float, int]:
    """Screen position and number of the best trial in the sketch of results."""
    body = chart(page, "results").locator(".chart-body")
    await body.scroll_into_view_if_needed()
    script = """async () => {
      const svg = document.querySelector("#chart-results .chart-sketch"), {left, top} = svg.getBoundingClientRect();
      const api = document.querySelector("#chart-results").dataset.api;
      const {best} = await (await fetch(`${api}/results`)).json();
      const line = svg.querySelector("path[stroke-width='2']").getAttribute("d");
      const [, x, y] = line.match(/^M([\\d.]+) ([\\d.]+)/);
      return [left + Number(x), top + Number(y), best.number[0]];
    }"""
    found: Any = await page.evaluate(script)
    return found[0], found[1], found[2]


@pytest.mark.parametrize("viewport", [_LAPTOP, {"width": 390, "height": 844}])
async def test_library_loads_when_a_chart_is_pointed_at(
    browser: Browser, site: str, world: World, viewport: Any
) -> None:
    await charted(world, "charted", 40)
    async with page_of(browser, viewport=viewport) as page:
        asked = asked_for(page)
        await page.goto(f"{site}/experiments/charted")
        await sketch(page, "results")
        await expect(chart(page, "results").locator(".chart-title")).to_contain_text("best so far 0.")
        await page.wait_for_load_state("networkidle")
        assert asked == [] and await page.evaluate("window.Plotly === undefined")
        assert not await is_wider_than_screen(page)
        body = chart(page, "results").locator(".chart-body")
        await body.scroll_into_view_if_needed()
        before = await body.bounding_box()
        await body.hover()
        await expect(body.locator(".main-svg").first).to_be_visible(timeout=LONG_MS)
        await expect(chart(page, "results").locator(".chart-sketch")).to_have_count(0)
        assert await body.bounding_box() == before and len(asked) == 1
        assert not await is_wider_than_screen(page)


async def test_passing_pointer_loads_nothing(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 10)
    async with page_of(browser, viewport=_LAPTOP) as page:
        asked = asked_for(page)
        await page.goto(f"{site}/experiments/charted")
        box = await (await sketch(page, "results")).bounding_box()
        assert box is not None
        await page.mouse.move(box["x"] + 200, box["y"] + 100)
        await page.mouse.move(box["x"] + 200, box["y"] - 300)
        await page.wait_for_timeout(500)
        assert asked == []


async def test_resting_pointer_shows_the_trial(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 40)
    async with page_of(browser, viewport=_LAPTOP) as page:
        await page.goto(f"{site}/experiments/charted")
        await sketch(page, "results")
        x, y, number = await place_of_a_point(page)
        await page.mouse.move(x + 1, y + 1)
        await expect(chart(page, "results").locator(".hovertext").first).to_contain_text(
            f"trial {number}", timeout=LONG_MS
        )


async def test_point_of_a_sketch_opens_its_trial(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 40)
    async with page_of(browser, viewport=_LAPTOP, has_touch=True) as page:
        await page.route(_LIBRARY, lambda route: None)  # it never loads
        await page.goto(f"{site}/experiments/charted")
        await sketch(page, "results")
        await page.evaluate(LISTEN)
        x, y, number = await place_of_a_point(page)
        await page.touchscreen.tap(x, y)
        await page.wait_for_function("() => opened.length === 1")
        assert await page.evaluate("opened") == [number]
        await page.keyboard.down("Shift")
        await page.mouse.click(x, y)
        await page.keyboard.up("Shift")
        assert state_of(page)["selected"] == str(number)
        await page.unroute_all(behavior="ignoreErrors")


async def test_keys_pressed_before_the_library_loads_count(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 40)
    async with page_of(browser, viewport=_LAPTOP) as page:
        await page.goto(f"{site}/experiments/charted")
        await sketch(page, "results")
        await page.evaluate(LISTEN)
        await chart(page, "results").locator(".chart-body").focus()
        for key in ("ArrowRight", "ArrowRight", "Enter"):
            await page.keyboard.press(key)
        await page.wait_for_function("() => opened.length === 1", timeout=LONG_MS)
        (number,) = await page.evaluate("opened")
        spoken = chart(page, "results").locator("[aria-live]")
        await expect(spoken).to_contain_text(f"trial {number}:")


async def test_sketch_remains_if_the_library_is_missing(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 20)
    async with opened(browser, viewport=_LAPTOP) as page:
        await page.route(_LIBRARY, lambda route: route.abort())
        await page.goto(f"{site}/experiments/charted")
        await sketch(page, "results")
        figure = chart(page, "results")
        await figure.locator(".chart-body").focus()
        await expect(figure.locator(".chart-words")).to_contain_text("could not be loaded", timeout=LONG_MS)
        await expect(figure.locator(".chart-sketch")).to_be_visible()
        await page.unroute(_LIBRARY)
        await figure.locator(".chart-body").hover()
        await expect(figure.locator(".main-svg").first).to_be_visible(timeout=LONG_MS)
        await expect(figure.locator(".chart-words")).to_be_empty()


async def test_sketch_follows_theme_width_axes_and_filters(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 300)
    async with page_of(browser, viewport=_LAPTOP, color_scheme="light") as page:
        asked = asked_for(page)
        await page.goto(f"{site}/experiments/charted")
        drawn = await sketch(page, "results")

        async def changes(act: Any) -> None:
            before = await drawn.inner_html()
            await act
            await page.wait_for_function(
                "before => document.querySelector('#chart-results .chart-sketch').innerHTML !== before",
                arg=before,
                timeout=LONG_MS,
            )

        await changes(page.locator("#theme").click())
        await changes(page.set_viewport_size({"width": 1000, "height": 900}))
        await changes(page.get_by_role("button", name="log y: Result by trial").click())
        await changes(page.get_by_label("hide outliers").check())
        await changes(page.get_by_label("x axis").select_option("elapsed"))
        await expect(drawn).to_contain_text("time since the start")
        await changes(page.get_by_label("x axis").select_option("clock"))
        await expect(drawn).to_contain_text("(UTC)")
        assert "NaN" not in await drawn.inner_html() and asked == []


#: An axis, values → its ticks.
TICKS: list[tuple[dict[str, Any], list[Any], list[str]]] = [
    ({"type": "linear"}, [0, 100_000], ["0", "20,000", "40,000", "60,000", "80,000", "100,000"]),
    ({"type": "linear"}, [-0.2, None, "NaN", 0.2], ["−0.2", "−0.1", "0", "0.1", "0.2"]),
    ({"type": "log"}, [0, 0.001, 10], ["0.001", "0.01", "0.1", "1", "10"]),
    ({"type": "log"}, [2, 3], ["2", "2.2", "2.4", "2.6", "2.8", "3"]),
    ({"type": "date"}, [0, 7_200_000], ["01-01 00:00", "00:30", "01:00", "01:30", "02:00"]),
    ({"type": "linear"}, [], ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
    ({"type": "linear", "whole": True}, [0, 1], ["0", "1"]),
    ({"type": "linear", "whole": True}, [0, 100], ["0", "20", "40", "60", "80", "100"]),
    ({"type": "log", "whole": True}, [1, 3], ["1", "2", "3"]),
]


async def test_axes_have_round_ticks(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 1)
    script = """async ([axis, values]) => {
      const root = document.baseURI.split("experiments/")[0];
      const {scaleOf} = await import(new URL("static/charts/sketch/axes.js", root).href);
      return scaleOf(axis, values, [0, 500], 0).ticks.map(({text}) => text);
    }"""
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/charted/config")
        for axis, values, ticks in TICKS:
            assert await page.evaluate(script, [axis, values]) == ticks, (axis, values)


async def test_durations_in_charts_have_the_format_of_the_page(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 1)
    script = """async (values) => {
      const root = document.baseURI.split("experiments/")[0];
      const {duration} = await import(new URL("static/charts/formats.js", root).href);
      return values.map(duration);
    }"""
    values = [1, 440, 9_999, 12_000, 65_000, 7_620_000, 349_200_000]
    async with page_of(browser) as page:
        await page.goto(f"{site}/experiments/charted/config")
        assert await page.evaluate(script, values) == [formats.duration(ms) for ms in values]


async def test_pareto_front_is_sketched(browser: Browser, site: str, world: World) -> None:
    await with_objectives(world, "compared", 40)
    async with page_of(browser, viewport=_LAPTOP) as page:
        asked = asked_for(page)
        await page.goto(f"{site}/experiments/compared")
        await expect(await sketch(page, "pareto")).to_contain_text("Pareto front")
        assert asked == []
        await chart(page, "pareto").locator(".chart-body").hover()
        await expect(chart(page, "pareto").locator(".main-svg").first).to_be_visible(timeout=LONG_MS)


async def test_curve_is_visible_without_javascript(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 30)
    async with page_of(browser, java_script_enabled=False) as page:
        await page.goto(f"{site}/experiments/charted")
        picture = chart(page, "results").get_by_role("img", name="Result by trial, best so far")
        await expect(picture).to_be_visible()
        assert await picture.evaluate("image => image.naturalWidth") == 480


#: Ticks of an axis drawn by the library.
_LIBRARY_TICKS = """([name, axis]) => {
  const texts = document.querySelectorAll(`#chart-${name} .${axis}tick text`);
  return [...texts].map(one => one.textContent);
}"""


async def test_axes_of_whole_numbers_have_no_fractional_ticks(browser: Browser, site: str, world: World) -> None:
    """In the sketch, in the library's drawing, and after zooming into few trials and back."""
    await charted(world, "charted", 2, steps=2)
    zoom = "range => Plotly.relayout(document.querySelector('#chart-results .chart-body'), range)"
    async with page_of(browser, viewport=_LAPTOP) as page:
        await page.goto(f"{site}/experiments/charted")
        for name, axis in (("results", "x"), ("curves", "x"), ("distribution", "y"), ("timeline", "y2")):
            figure = await drawn(page, name)
            await expect(figure.locator(f".{axis}tick text").first).to_be_visible(timeout=LONG_MS)
            ticks = await page.evaluate(_LIBRARY_TICKS, [name, axis])
            assert ticks and not [text for text in ticks if "." in text], (name, ticks)
        await page.evaluate(zoom, {"xaxis.range": [5.6, 6.4]})
        await expect(chart(page, "results").locator(".xtick text")).to_have_text(["6"])
        await page.evaluate(zoom, {"xaxis.range": [0, 100]})
        await expect(chart(page, "results").locator(".xtick text")).not_to_have_count(101)
        assert "20" in await page.evaluate(_LIBRARY_TICKS, ["results", "x"])
