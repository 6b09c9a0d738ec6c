"""How fast reported metrics become visible in the API, and what one costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import lite, subject
from tests.live_daemon import Daemon

#: In all, whatever the number of writers.
METRICS = 100_000
TRICKLE_S = 10
Row = Callable[[str, float | None, float, float | None, str], None]

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


def report(folder: Path, row: Row) -> None:
    """Prints one row for each figure."""
    with subject.running(folder) as daemon:
        (folder / "code" / "burst.py").write_text(_BURST)
        (folder / "code" / "trickle.py").write_text(_TRICKLE)
        subject_id = daemon.create(subject.config(trials=2, at_once=2), folder / "code")
        daemon.wait(subject_id, "DONE")
        for writers in (1, 8):
            rate, cpu_us = _run(daemon, folder, "burst.py", METRICS // writers, writers)
            row(f"metrics/s until visible, {writers} writers, bursts", None, rate, None, "≥ 15000")
            row(f"CPU µs a metric, {writers} writers, bursts", None, cpu_us, None, "≤ 20")
        _, cpu_us = _run(daemon, folder, "trickle.py", 1000 * TRICKLE_S, 1, looks=False)
        row("CPU µs a metric, one writer, 1,000 a second", None, cpu_us, None, "≤ 80")


def _run(
    daemon: Daemon, folder: Path, script: str, each: int, writers: int, *, looks: bool = True
) -> tuple[float, float]:
    """(metrics a second from the first write to all visible, CPU microseconds each of our processes together).

    `looks`: asks the API all the time, which costs the daemon something; without, the rate says nothing.
    """
    config = subject.config(trials=writers, at_once=writers, command=f"{lite.PYTHON} -I -S {script} {each}")
    before = sum(subject.cpu_s(daemon).values())
    id_ = daemon.create(config, folder / "code")
    began = time.perf_counter()
    total = each * writers
    while looks and _stored(daemon, id_) < total:
        pass
    seconds = time.perf_counter() - began
    daemon.wait(id_, "DONE")
    assert _stored(daemon, id_) == total
    return total / seconds, (sum(subject.cpu_s(daemon).values()) - before) / total * 1e6


def _stored(daemon: Daemon, id_: str) -> int:
    """How many the API shows."""
    trials = daemon.call("GET", f"/experiments/{id_}/trials?limit=100")["trials"]
    time.sleep(0.01)
    return sum(trial["intermediates"] for trial in trials)
