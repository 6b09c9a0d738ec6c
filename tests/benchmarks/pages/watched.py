"""The rate of trials while a browser on the same machine shows their page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page

from tests.benchmarks import subject, upstream
from tests.benchmarks.pages import chromium
from tests.benchmarks.table import FLOOR, Table, at_least
from tests.live_daemon import Daemon

_PAIRS = 5
_TRIALS, _AT_ONCE = 1_500, 8
#: Number of last trials measured: the page has been opened before, which takes CPU seconds.
_LATER = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rate:
    """Trials per second."""

    #: From the first one's creation to the last one's end.
    whole: float
    #: Rate of the last trials.
    later: float


def measure(folder: Path, table: Table) -> None:
    """Alternately without and with the page, in a browser on the same processors."""
    alone, watched = [], []
    port = upstream.free_port()
    with subject.running(folder, "--port", str(port)) as daemon, chromium.browser() as browser:
        _rate(daemon, folder, None, port)
        for _ in range(_PAIRS):
            alone.append(_rate(daemon, folder, None, port))
            with chromium.tab(browser) as page:
                watched.append(_rate(daemon, folder, page, port))
    for what, of in (("from its opening on", "whole"), ("once it is open", "later")):
        name = f"page: lite trials/s, {_AT_ONCE} at a time, while it is looked at, {what}; floor: nobody looks"
        ours, floor = ([getattr(rate, of) for rate in rates] for rates in (watched, alone))
        table.row(name, ours, at_least(0.9, FLOOR), floor=floor)


def _rate(daemon: Daemon, folder: Path, page: Page | None, port: int) -> _Rate:
    id_ = daemon.create(subject.config(trials=_TRIALS, at_once=_AT_ONCE), folder / "code")
    if page is not None:
        page.goto(f"http://127.0.0.1:{port}/experiments/{id_}")
    daemon.wait(id_, "DONE", timeout_s=120)
    ((first,),) = daemon.rows(id_, "SELECT min(created_ms) FROM trials")
    ends = [ms for (ms,) in daemon.rows(id_, "SELECT ended_ms FROM trials ORDER BY ended_ms")]
    return _Rate(whole=_TRIALS / ((ends[-1] - first) / 1000), later=_LATER / ((ends[-1] - ends[-1 - _LATER]) / 1000))
