"""Delay and cost of reported metrics until they are visible in the API."""

from __future__ import annotations

import time
from pathlib import Path

from tests.benchmarks import lite, subject, upstream
from tests.benchmarks.table import Table, at_least, at_most
from tests.live_daemon import Daemon

#: Total number, independent of the number of writers.
METRICS = 100_000
TRICKLE_S = 10
#: Number for NNI, which needs some seconds for them.
_NNI_METRICS = 1_000
_PATIENCE_S = 20

_BURST = """
import os, sys
count = int(sys.argv[1])
block = b'{"type": "intermediate", "value": 0.123456}\\n' * 100
outbox = os.open(os.environ["NNI_OUTBOX"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for _ in range(count // 100):
    os.write(outbox, block)
"""
_TRICKLE = """
import os, sys, time
outbox = os.open(os.environ["NNI_OUTBOX"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
begin = time.perf_counter()
for number in range(int(sys.argv[1])):
    time.sleep(max(0, begin + number / 1000 - time.perf_counter()))
    os.write(outbox, b'{"type": "intermediate", "value": 0.123456}\\n')
"""


def measure(folder: Path, table: Table) -> None:
    nni = {writers: _nni(folder / f"nni-{writers}", writers) for writers in (1, 8)}
    with subject.running(folder / "ours") as daemon:
        code = folder / "ours" / "code"
        (code / "burst.py").write_text(_BURST)
        (code / "trickle.py").write_text(_TRICKLE)
        daemon.wait(daemon.create(subject.config(trials=2, at_once=2), code), "DONE")
        for writers, (nni_rate, nni_cpu_us) in nni.items():
            rate, cpu_us = _run(daemon, code, "burst.py", METRICS // writers, writers)
            name = f"{writers} trial{'s' if writers > 1 else ''}, bursts"
            table.row(f"metrics/s until visible, {name}", rate, at_least(15_000), nni=nni_rate)
            table.row(f"CPU µs a metric, {name}", cpu_us, at_most(20), nni=nni_cpu_us)
        _, cpu_us = _run(daemon, code, "trickle.py", 1000 * TRICKLE_S, 1, looks=False)
        table.row("CPU µs a metric, 1 trial, 1,000 a second", cpu_us, at_most(80))


def _nni(folder: Path, writers: int) -> tuple[float, float]:
    """The same with NNI, over its HTTP channel."""
    with upstream.Nni(folder) as nni:
        each = _NNI_METRICS // writers
        command = f"{lite.NNI_BURST_COMMAND} {each}"
        before = upstream.begin(nni, subject.config(trials=writers, at_once=writers, command=command))
        stored, seconds = _until_no_more_come(nni, each * writers)
        return stored / seconds, (nni.cpu_s() - before) / stored * 1e6


def _until_no_more_come(nni: upstream.Nni, wanted: int) -> tuple[int, float]:
    """(visible metrics, seconds until the last one); NNI sometimes loses some."""
    began = changed = time.perf_counter()
    stored = 0
    while stored < wanted and time.perf_counter() - changed < _PATIENCE_S:
        now = len(nni.get("metric-data"))
        if now > stored:
            stored, changed = now, time.perf_counter()
        time.sleep(0.05)
    return stored, changed - began


def _run(
    daemon: Daemon, code: Path, script: str, each: int, writers: int, *, looks: bool = True
) -> tuple[float, float]:
    """(metrics per second from the first write until all are visible, CPU microseconds per metric of our processes).

    `looks`: polls the API, which loads the daemon; without polling the rate is meaningless.
    """
    config = subject.config(trials=writers, at_once=writers, command=f"{lite.PYTHON} -I -S {script} {each}")
    before = sum(subject.cpu_s(daemon).values())
    id_ = daemon.create(config, code)
    began = time.perf_counter()
    total = each * writers
    while looks and _stored(daemon, id_) < total:
        pass
    seconds = time.perf_counter() - began
    daemon.wait(id_, "DONE")
    assert _stored(daemon, id_) == total
    return total / seconds, (sum(subject.cpu_s(daemon).values()) - before) / total * 1e6


def _stored(daemon: Daemon, id_: str) -> int:
    """Number of metrics in the API."""
    trials = daemon.call("GET", f"/experiments/{id_}/trials?limit=100")["trials"]
    time.sleep(0.01)
    return sum(trial["intermediates"] for trial in trials)
