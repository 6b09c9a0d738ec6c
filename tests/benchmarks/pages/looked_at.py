"""The page of 1,000, 10,000 and 100,000 trials × 20 parameters × 50 intermediate results in Chromium."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, Page

from tests.benchmarks.pages import chromium, filled
from tests.benchmarks.table import Table, at_most

_REPEATS = 3
_IDLE_S = 30

#: Whether tiles and charts of the first screen are drawn, with or without the library.
FIRST_VIEW = """['results', 'curves'].every(name =>
  document.querySelector(`figure[data-chart=${name}]`)?.querySelector('.chart-sketch, .main-svg')
) && document.querySelector('#tile-best + .value')"""
#: Rows appear before the scripts run; until then a link loads the whole page.
_TABLE = "document.readyState === 'complete' && document.querySelectorAll('tr[data-trial]').length === 50"
_NEXT_PAGE = """() => new Promise(done => {
  const began = performance.now(), part = document.getElementById("trials-part");
  const tell = () => done(performance.now() - began);
  part.addEventListener("replaced", () => requestAnimationFrame(() => setTimeout(tell)), {once: true});
  document.querySelector(".pager a[rel=next]").click();
})"""
#: Records the time of the pointer's release, and of the following chart drawings.
_NOTE_CHARTS = """() => {
  window.noted = {up: 0, drawn: []};
  addEventListener("pointerup", () => { noted = {up: performance.now(), drawn: []}; }, {capture: true});
  document.addEventListener("chartanswer", event => noted.drawn.push([event.target.id, performance.now() - noted.up]));
}"""
_ALL_DRAWN = """[...document.querySelectorAll('figure[data-chart]')].every(
  chart => chart.querySelector('.chart-sketch, .main-svg, canvas'))"""
#: Fixed order of the axes, so that the first one is brushed.
AXES = "?axes=p0,p1,p2,p3,p4,p5,p6,p7"
#: Pixels of the parallel coordinates, as in parallel_axes.js.
_AXIS_LEFT, _AXIS_TOP = 44, 40


def measure(folder: Path, table: Table) -> None:
    with filled.site(folder / "filled") as site, chromium.browser() as browser:
        for size in filled.SIZES:
            _of_size(site, browser, size, table)


def _of_size(site: filled.Site, browser: Browser, size: int, table: Table) -> None:
    count = f"{size:,} trials"
    site.restart()
    cold = _first_view(browser, site.page(size))
    table.row(f"page: first view after the daemon's start, s, {count}", cold, at_most(2))
    views = [_first_view(browser, site.page(size)) for _ in range(_REPEATS)]
    table.row(f"page: first view, s, {count}", views, at_most(2))
    table.row(
        f"page: next page of the table, s, {count}", _next_pages(browser, site.page(size, "/trials")), at_most(0.3)
    )
    with chromium.tab(browser) as page:
        chromium.seconds_until(page, site.page(size, AXES), FIRST_VIEW)
        brushed = brushes(page)
        table.row(f"page: first chart after a brush, s, {count}", [first for first, _ in brushed], at_most(0.5))
        table.row(f"page: last chart in view after a brush, s, {count}", [last for _, last in brushed], at_most(0.5))
        _see_all(page)
        table.row(f"page: memory of the tab, MiB, {count}", chromium.tab_mib()[0], at_most(300))
        table.row(f"page: bytes received in {_IDLE_S} idle seconds, {count}", _idle_bytes(page), at_most(1000))


def _first_view(browser: Browser, url: str) -> float:
    with chromium.tab(browser) as page:
        return chromium.seconds_until(page, url, FIRST_VIEW)


def _next_pages(browser: Browser, url: str) -> list[float]:
    with chromium.tab(browser) as page:
        chromium.seconds_until(page, url, _TABLE)
        return [page.evaluate(_NEXT_PAGE) / 1000 for _ in range(2 * _REPEATS)]


def brushes(page: Page) -> list[tuple[float, float]]:
    """Seconds from the end of the drag to (the first chart, the last chart in view)."""
    chart = page.locator("figure[data-chart=parallel]")
    chart.scroll_into_view_if_needed()
    chart.locator("canvas").first.wait_for()
    page.evaluate(_NOTE_CHARTS)
    found = []
    for repeat in range(_REPEATS):
        _settle(page)
        box = chart.locator(".parallel-surface").bounding_box()
        assert box is not None
        left, top = box["x"] + _AXIS_LEFT, box["y"] + _AXIS_TOP
        page.mouse.move(left, top + 60 + 10 * repeat)
        page.mouse.down()
        page.mouse.move(left, top + 200 + 10 * repeat, steps=8)
        page.mouse.up()
        page.wait_for_url("**p.p0=**")
        _settle(page)
        drawn = [ms / 1000 for _, ms in page.evaluate("() => noted.drawn")]
        found.append((min(drawn), max(drawn)))
        page.go_back()
    return found


def _settle(page: Page) -> None:
    """Wait until no chart has been drawn for a second."""
    before = -1
    while before != (before := page.evaluate("() => noted.drawn.length")):
        page.wait_for_timeout(1000)


def _see_all(page: Page) -> None:
    for chart in page.locator("figure[data-chart]").all():
        chart.scroll_into_view_if_needed()
        chart.locator(".chart-tools button").first.wait_for()
    while not page.evaluate(_ALL_DRAWN):
        page.wait_for_timeout(100)
    _settle(page)


def _idle_bytes(page: Page) -> int:
    traffic = chromium.Traffic(page)
    page.wait_for_timeout(_IDLE_S * 1000)
    return traffic.bytes
