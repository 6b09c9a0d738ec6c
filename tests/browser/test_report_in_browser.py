"""The report, opened as a file without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, expect

from tests.api.world import World
from tests.browser.charted import charted
from tests.browser.objectives import with_objectives
from tests.browser.test_charts_in_browser import LONG_MS

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

_CHARTS = ("results", "curves", "effect", "distribution", "timeline")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the reports."""
    return tmp_path_factory.mktemp("reports")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def offline(browser: Browser) -> AsyncIterator[BrowserContext]:
    """Pages of one context share a process, which compiles a report's script once."""
    context = await browser.new_context(offline=True)
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def report(site: str, world: World, folder: Path) -> Path:
    """A report with charts, shared by all tests."""
    path = folder / "charted.html"
    if not path.exists():
        await charted(world, "charted", 60)
        await save(site, "charted", path)
    return path


async def save(site: str, id: str, path: Path) -> None:
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{site}/api/v1/experiments/{id}/report", timeout=60)
    assert answer.status_code == 200
    await asyncio.to_thread(path.write_bytes, answer.content)


async def test_charts_are_drawn_without_a_network(report: Path, offline: BrowserContext) -> None:
    page = await offline.new_page()
    trouble: list[str] = []
    page.on("dialog", lambda _: trouble.append("a script of stored text ran"))
    page.on("console", lambda message: trouble.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.goto(report.as_uri())
    for name in _CHARTS:
        figure = page.locator(f"figure.chart-{name}")
        await figure.scroll_into_view_if_needed()
        drawn = figure.locator(".chart-body").locator("svg.main-svg, svg.chart-sketch")
        await expect(drawn.first).to_be_visible(timeout=LONG_MS)
    await expect(page.locator("figure.chart-parallel canvas").first).to_be_visible(timeout=LONG_MS)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    await page.get_by_label("Effect of", exact=True).select_option("batch_size")
    await expect(page.get_by_text("Effect of batch_size on the result")).to_be_visible()
    await page.get_by_label("Up", exact=True).select_option("batch_size")
    await expect(page.locator("figure.chart-pair .chart-title")).to_contain_text("batch_size")
    assert trouble == []
    await page.close()


async def test_printed_report_has_every_chart(report: Path, offline: BrowserContext, tmp_path: Path) -> None:
    """Including charts that were never in view; drawings after the print request would be too late."""
    page = await offline.new_page()
    await page.set_viewport_size({"width": 1200, "height": 200})
    await page.goto(report.as_uri())
    await page.locator("html[data-drawn]").wait_for()
    found = "f.querySelector('.main-svg, .chart-sketch, canvas')"
    undrawn = f"[...document.querySelectorAll('figure')].filter(f => !{found}).length"
    assert await page.evaluate(undrawn) > 3, "most charts are far below"
    await page.evaluate(f"addEventListener('afterprint', () => {{ window.missing = {undrawn}; }})")
    (tmp_path / "report.pdf").write_bytes(await page.pdf(format="A4"))
    assert await page.evaluate("missing") == 0
    await page.close()


async def test_pareto_front_of_a_report_equals_the_page(
    site: str, world: World, offline: BrowserContext, tmp_path: Path
) -> None:
    await with_objectives(world, "many", 40)
    path = tmp_path / "report.html"
    await save(site, "many", path)
    page = await offline.new_page()
    await page.goto(path.as_uri())
    figure = page.locator("figure.chart-pareto")
    await figure.scroll_into_view_if_needed()
    await expect(figure.locator(".chart-title")).to_contain_text("non-dominated trials", timeout=LONG_MS)
    labels = await figure.locator(".chart-body").evaluate("body => body.data.map(one => one.name)")
    assert labels == ["violates a constraint", "dominated", "Pareto front"]
    await figure.get_by_label("Up").select_option("size")
    await expect(figure.locator(".ytitle")).to_have_text("size (smaller is better)")
    await page.close()


async def test_report_is_read_without_scripts(site: str, world: World, browser: Browser, tmp_path: Path) -> None:
    await world.add("seeded")
    path = tmp_path / "report.html"
    await save(site, "seeded", path)
    context = await browser.new_context(java_script_enabled=False, offline=True)
    page = await context.new_page()
    await page.goto(path.as_uri())
    await expect(page.get_by_role("row", name="good1")).to_contain_text("0.875")
    await expect(page.get_by_text("Charts need JavaScript").first).to_be_visible()
    await context.close()
