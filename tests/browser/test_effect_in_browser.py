"""The effect chart, which is drawn without the library: pointing, opening, pinning, selecting, saving as an image."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.api.world import World
from tests.browser.charted import charted
from tests.browser.test_charts_in_browser import LISTEN, LONG_MS, drag, drawn, state_of
from tests.browser.test_pages_in_browser import is_wider_than_screen, page_of

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

_LAPTOP = {"width": 1400, "height": 900}
_PHONE = {"width": 390, "height": 844}


async def opened(page: Page, site: str, query: str) -> Locator:
    """The chart in the middle of the window; the library is never loaded."""
    await page.route(re.compile("plotly[^/]*js"), lambda route: None)
    await page.goto(f"{site}/experiments/charted?{query}")
    figure = await drawn(page, "effect")
    await figure.evaluate("figure => figure.scrollIntoView({block: 'center'})")
    return figure


async def places(figure: Locator, attribute: str, colour: str) -> list[tuple[float, float]]:
    """Screen positions of marks with this colour in the first panel, three pixels inside their start.

    `attribute`: SVG attribute with the colour, a variable of the style sheet.
    """
    script = """(figure, [attribute, colour]) => {
      const svg = figure.querySelector(".chart-sketch"), {left, top} = svg.getBoundingClientRect();
      const wanted = getComputedStyle(document.documentElement).getPropertyValue(colour).trim();
      const marks = [...svg.querySelectorAll("path")].find(one => one.getAttribute(attribute) === wanted);
      const begins = marks.getAttribute("d").matchAll(/M(-?[\\d.]+) (-?[\\d.]+)/g);
      return [...begins].map(([, x, y]) => [left + Number(x), top + Number(y)]);
    }"""
    found: Any = await figure.evaluate(script, [attribute, colour])
    return [(x + 3, y + 3) for x, y in found]


async def trials(figure: Locator) -> list[tuple[float, float]]:
    """The circles of the best trials."""
    return [(x, y - 3) for x, y in await places(figure, "stroke", "--fg")]


async def test_point_shows_opens_and_pins_its_trial(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 40)
    async with page_of(browser, viewport=_LAPTOP) as page:
        figure = await opened(page, site, "effect=rate")
        await page.evaluate(LISTEN)
        x, y = (await trials(figure))[-1]
        await page.mouse.move(x + 1, y + 1)
        tip = figure.locator(".chart-tip")
        await expect(tip).to_contain_text("trial ")
        await expect(tip).to_contain_text("rate ")
        number = int((await tip.locator("div").first.inner_text()).removeprefix("trial "))
        await page.mouse.click(x, y)
        assert await page.evaluate("opened") == [number]
        await page.keyboard.press("p")
        await expect(figure.get_by_role("link", name=f"Trial {number}", exact=True)).to_be_visible(timeout=LONG_MS)
        await page.keyboard.press("Escape")
        await page.mouse.move(x, y - 600)
        await expect(tip).to_be_hidden()


async def test_bin_shows_its_median_and_best(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 40)
    async with page_of(browser, viewport=_LAPTOP) as page:
        figure = await opened(page, site, "effect=optimizer&top=5")
        x, y = (await places(figure, "fill", "--c2"))[0]
        await page.mouse.move(x, y)
        await expect(figure.locator(".chart-tip")).to_contain_text(re.compile(r"^adam(best|trial|median) "))
        assert await page.evaluate("document.querySelectorAll('img[onerror]').length") == 0


@pytest.mark.parametrize(("name", "value"), [("rate", r"^[\d.e-]+\.\.[\d.e-]+$"), ("optimizer", "^adam$")])
async def test_selection_in_a_panel_filters_by_its_parameter(
    browser: Browser, site: str, world: World, name: str, value: str
) -> None:
    await charted(world, "charted", 100)
    async with page_of(browser, viewport=_LAPTOP) as page:
        figure = await opened(page, site, f"effect={name}")
        await page.evaluate(LISTEN)
        box = await figure.locator(".chart-sketch").bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        await page.mouse.move(box["x"] + 80, middle)
        await page.mouse.down()
        await page.mouse.move(box["x"] + box["width"] * 0.35, middle, steps=5)
        await expect(figure.locator(".chart-sketch rect")).to_be_visible()
        await page.mouse.up()
        await expect(page).to_have_url(re.compile(f"p.{name}="))
        assert re.search(value, state_of(page)[f"p.{name}"])
        assert await page.evaluate("opened") == []
        await expect(figure.locator(".chart-count")).not_to_contain_text("of 105", timeout=LONG_MS)
        await expect(figure.locator(".chart-sketch rect")).to_have_count(0)


async def test_panels_follow_theme_width_and_axis_and_need_no_library(
    browser: Browser, site: str, world: World
) -> None:
    await charted(world, "charted", 60)
    async with page_of(browser, viewport=_LAPTOP, color_scheme="light") as page:
        figure = await opened(page, site, "")
        svg = figure.locator(".chart-sketch")
        await expect(svg.get_by_text(re.compile("^rate"))).to_be_visible()

        async def changes(act: Any) -> None:
            before = await svg.inner_html()
            await act
            script = "before => document.querySelector('#chart-effect .chart-sketch').innerHTML !== before"
            await page.wait_for_function(script, arg=before, timeout=LONG_MS)

        await changes(figure.get_by_role("button", name="log y: Effect").click())
        await changes(page.locator("#theme").click())
        await changes(page.set_viewport_size(_PHONE))
        box = await svg.bounding_box()
        assert box is not None and box["width"] < 390 and box["height"] > 600  # one below the other
        assert not await is_wider_than_screen(page)
        assert "NaN" not in await svg.inner_html()


async def test_fingers_scroll_a_narrow_chart(browser: Browser, site: str, world: World) -> None:
    await charted(world, "charted", 40)
    async with page_of(browser, viewport=_PHONE, has_touch=True) as page:
        figure = await opened(page, site, "effect=rate")
        box = await figure.locator(".chart-sketch").bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        await drag(page, (box["x"] + 80, middle), (box["x"] + 250, middle))
        assert "p.rate" not in state_of(page)
        await page.evaluate(LISTEN)
        await page.touchscreen.tap(*(await trials(figure))[0])
        await page.wait_for_function("opened.length === 1")


async def test_effect_chart_is_saved_as_an_image(browser: Browser, site: str, world: World, tmp_path: Path) -> None:
    await charted(world, "charted", 40)
    async with page_of(browser, viewport=_LAPTOP) as page:
        figure = await opened(page, site, "")
        for kind, first in {"PNG": b"\x89PNG", "SVG": b"<svg"}.items():
            async with page.expect_download() as download:
                await figure.get_by_role("button", name=f"Download as {kind}").click()
            path = tmp_path / f"effect.{kind}"
            await (await download.value).save_as(path)
            assert path.read_bytes().startswith(first)
        text = (tmp_path / "effect.SVG").read_text()
        assert 'xmlns="http://www.w3.org/2000/svg"' in text and "best of the bin" in text and "<img" not in text
