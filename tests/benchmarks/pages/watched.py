"""The rate of trials while a browser on the same machine shows their page."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

from tests.benchmarks import subject, upstream
from tests.benchmarks.pages import chromium
from tests.benchmarks.table import FLOOR, Table, at_least
from tests.live_daemon import Daemon

_PAIRS = 5
#: To open the page takes a second of a processor: of an experiment that is over in four, a share that no other has.
_TRIALS, _AT_ONCE = 1_500, 8
#: The browser gives way: in truth it is on another machine.
_NICENESS = 10


def measure(folder: Path, table: Table) -> None:
    """In turns without the page and with it."""
    alone, watched = [], []
    port = upstream.free_port()
    with subject.running(folder, "--port", str(port)) as daemon, chromium.browser(_NICENESS) as browser:
        _rate(daemon, folder, None, port)
        for _ in range(_PAIRS):
            alone.append(_rate(daemon, folder, None, port))
            with chromium.tab(browser) as page:
                watched.append(_rate(daemon, folder, page, port))
    name = f"page: lite trials/s, {_AT_ONCE} at a time, while it is looked at; floor: nobody looks"
    table.row(name, watched, at_least(0.9, FLOOR), floor=alone)


def _rate(daemon: Daemon, folder: Path, page: Page | None, port: int) -> float:
    """Trials a second, from the first one's creation to the last one's end."""
    id_ = daemon.create(subject.config(trials=_TRIALS, at_once=_AT_ONCE), folder / "code")
    if page is not None:
        page.goto(f"http://127.0.0.1:{port}/experiments/{id_}")
    daemon.wait(id_, "DONE", timeout_s=120)
    ((first, last),) = daemon.rows(id_, "SELECT min(created_ms), max(ended_ms) FROM trials")
    return _TRIALS / ((last - first) / 1000)
