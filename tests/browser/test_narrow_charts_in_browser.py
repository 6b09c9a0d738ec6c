"""Charts on a phone: buttons are large enough, visible, and not covered."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Locator, expect

from tests.api.world import World
from tests.browser.charted import charted
from tests.browser.test_charts_in_browser import LONG_MS, drawn
from tests.browser.test_pages_in_browser import is_wider_than_screen, page_of

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

#: Minimum size of a target in pixels, by WCAG 2.2.
_LEAST = 24
_NARROW = {"width": 390, "height": 844}


async def require_buttons_to_press(figure: Locator) -> None:
    for button in await figure.locator(".chart-tools button, .chart-logs button").all():
        box = await button.bounding_box()
        assert box is not None and min(box["width"], box["height"]) >= _LEAST, await button.text_content()
        assert box["x"] >= 0 and box["x"] + box["width"] <= _NARROW["width"]
        await button.click(trial=True, timeout=LONG_MS)  # fails if something covers it


@pytest.mark.parametrize("name", ["results", "parallel"])
async def test_buttons_of_a_narrow_chart_can_be_pressed(site: str, world: World, browser: Browser, name: str) -> None:
    await charted(world, "charted", 30)
    async with page_of(browser, viewport=_NARROW) as page:
        await page.goto(f"{site}/experiments/charted")
        figure = await drawn(page, name)
        await require_buttons_to_press(figure)
        await figure.locator(".chart-body").focus()
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("p")
        await expect(figure.locator(".chart-pin dl")).to_be_visible(timeout=LONG_MS)
        await require_buttons_to_press(figure)
        assert not await is_wider_than_screen(page)


async def test_buttons_of_a_narrow_comparison_can_be_pressed(site: str, world: World, browser: Browser) -> None:
    for name in ("first", "second"):
        await charted(world, name, 20)
    async with page_of(browser, viewport=_NARROW) as page:
        await page.goto(f"{site}/compare-experiments?ids=first,second")
        figure = await drawn(page, "best_curves")
        await require_buttons_to_press(figure)
        for axis in ("x", "y"):
            await figure.get_by_role("button", name=f"log {axis}: Best so far").click()
        types = "body => [body._fullLayout.xaxis.type, body._fullLayout.yaxis.type]"
        body = await figure.locator(".chart-body").element_handle()
        await page.wait_for_function(f"body => String(({types})(body)) === 'log,log'", arg=body, timeout=LONG_MS)
        assert not await is_wider_than_screen(page)
