"""Our page compared with NNI 3.0's and optuna-dashboard's, with the same trials:

`python -m tests.benchmarks.pages.beside PYTHON [TRIALS…]`, where PYTHON has optuna-dashboard.
NNI's page is its own files in front of our API. Measurements are aborted after four minutes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Error, Page

from tests.benchmarks.pages import chromium, filled, looked_at, rivals

_NNI_ROWS = "document.querySelectorAll('[data-automationid=DetailsRow]').length > 0 && document.querySelector('canvas')"
_OPTUNA_HISTORY = "document.querySelector('.js-plotly-plot .main-svg .point, .js-plotly-plot .scatterlayer path')"


@dataclass(frozen=True, slots=True)
class _Rival:
    """One page. `first`: JavaScript that is true when its first charts are drawn; `change`: seconds of a change."""

    name: str
    url: str
    first: str
    change: Callable[[Page], float]


def main() -> None:
    python = Path(sys.argv[1]).absolute()
    sizes = [int(word) for word in sys.argv[2:]] or list(filled.SIZES)
    print(
        "| Trials | Page | first view, s | after a change, s | memory of the tab, MiB |\n|---|---|---|---|---|",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder, filled.site(Path(folder) / "ours", sizes) as site:
        for size in sizes:
            for opened in (_ours(site, size), _nni(site, size), _optuna(site, size, python, Path(folder) / f"{size}")):
                with opened as rival, chromium.browser() as browser:
                    print(f"| {size:,} | {rival.name} | {' | '.join(_measured(browser, rival))} |", flush=True)


def _measured(browser: Browser, rival: _Rival) -> list[str]:
    found: list[str] = []
    with chromium.tab(browser) as page:
        try:
            found.append(f"{chromium.seconds_until(page, rival.url, rival.first):.2f}")
            found.append(f"{rival.change(page):.2f}")
            found.append(f"{chromium.tab_mib()[0]:.0f}")
        except Error as error:
            found.append(f"gave up: {error.message.splitlines()[0]}")
    return [*found, "", ""][:3]


@contextmanager
def _ours(site: filled.Site, size: int) -> Iterator[_Rival]:
    def brush(page: Page) -> float:
        return looked_at.brushes(page)[-1][1]

    yield _Rival("ours", site.page(size, looked_at.AXES), looked_at.FIRST_VIEW, brush)


@contextmanager
def _nni(site: filled.Site, size: int) -> Iterator[_Rival]:
    with rivals.nni_page(site.endpoint(size)) as url:

        def next_page(page: Page) -> float:
            page.goto(f"{url}detail", wait_until="commit")
            page.wait_for_function(f"() => {_NNI_ROWS}", polling="raf")
            next_link = ".pagination .next a, [aria-label='Next page']"
            page.locator(next_link).first.wait_for()
            row = "document.querySelector('[data-automationid=DetailsRow]').textContent"
            before, began = page.evaluate(f"() => {row}"), time.perf_counter()
            page.locator(next_link).first.click()
            page.wait_for_function(f"before => {row} !== before", arg=before, polling="raf")
            return time.perf_counter() - began

        yield _Rival("NNI 3.0's", f"{url}oview", _NNI_ROWS, next_page)


@contextmanager
def _optuna(site: filled.Site, size: int, python: Path, folder: Path) -> Iterator[_Rival]:
    database = site.daemon.data / site.ids[size] / "db" / "nni.sqlite"

    def log_scale(page: Page) -> float:
        began = time.perf_counter()
        page.get_by_text("Log y scale").first.click()
        is_log = "[...document.querySelectorAll('.js-plotly-plot')].some(p => p._fullLayout?.yaxis?.type === 'log')"
        page.wait_for_function(f"() => {is_log}", polling="raf")
        return time.perf_counter() - began

    with rivals.optuna_dashboard(python, database, folder) as url:
        yield _Rival("optuna-dashboard's", url, _OPTUNA_HISTORY, log_scale)


if __name__ == "__main__":
    main()
