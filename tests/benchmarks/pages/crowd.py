"""Cost of fifty open pages for the daemon while their experiment reports a result per second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.benchmarks import subject, upstream
from tests.benchmarks.table import Table, at_most
from tests.live_daemon import Daemon

_READERS = 50
#: Seconds of each measured period.
_SECONDS = 20
#: Seconds to open all pages.
_OPENING_S = 5
#: A trial that reports once a second.
_REPORT = 'echo "{\\"type\\": \\"intermediate\\", \\"value\\": $i}" >> "$NNI_OUTBOX"'
_COMMAND = f"i=0; while :; do {_REPORT}; i=$((i+1)); sleep 1; done"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """Per cent of a core."""

    daemon: float
    analysis: float
    #: From each event to the page that shows it.
    late_ms: list[float]


def measure(folder: Path, table: Table) -> None:
    port = upstream.free_port()
    with subject.running(folder, "--port", str(port)) as daemon:
        id_ = daemon.create(subject.config(trials=2, at_once=1, command=_COMMAND), folder / "code")
        daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING"))
        url = f"http://127.0.0.1:{port}/experiments/{id_}"
        _read(daemon, url, 1, 5)  # what is made once is there then
        none, memory = _read(daemon, url, 0), _mib(daemon)
        one = _read(daemon, url, 1)
        many = _read(daemon, url, _READERS)
        more = _mib(daemon) - memory
    rows = f"{_READERS} open pages, a result a second"
    extra = many.daemon - none.daemon
    table.row(f"CPU of the daemon, % of a core more than without a page, {rows}", extra, at_most(5))
    table.row(f"CPU of its process for charts, % of a core, {rows}; floor: one page", many.analysis, floor=one.analysis)
    table.row(f"memory of the daemon, MiB more, {rows}", more, at_most(30))
    late = sorted(many.late_ms)[int(0.95 * len(many.late_ms))] / 1000
    table.row(f"s from an event to the page that shows it, p95, {rows}", late, at_most(1))


def _read(daemon: Daemon, url: str, count: int, seconds: float = _SECONDS) -> _Cost:
    """Keep `count` pages open for this time; opening them is not measured."""
    command = [sys.executable, "-m", "tests.benchmarks.pages.readers", url, str(count), str(seconds + _OPENING_S)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()}
    ) as readers:
        time.sleep(_OPENING_S)
        before = _cpu_s(daemon)
        time.sleep(seconds)
        after = _cpu_s(daemon)
        late = json.loads(readers.communicate()[0])
    spent = {name: 100 * (after[name] - before.get(name, 0)) / seconds for name in after}
    return _Cost(daemon=spent["daemon"], analysis=spent.get("analysis", 0), late_ms=late)


def _cpu_s(daemon: Daemon) -> dict[str, float]:
    """CPU seconds so far of the daemon and, if it runs, of its analysis process."""
    assert daemon.process is not None
    own = psutil.Process(daemon.process.pid)
    found = {"daemon": subject.runtime_s(own)}
    for child in own.children():
        if "nni_manager.analysis.worker" in child.cmdline():
            found["analysis"] = subject.runtime_s(child)
    return found


def _mib(daemon: Daemon) -> float:
    assert daemon.process is not None
    return float(psutil.Process(daemon.process.pid).memory_info().rss / 2**20)
