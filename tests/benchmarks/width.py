"""Many trials at a time: what a trial costs the daemon, whether it keeps up, and what the API answers meanwhile.

The platform simulates trials of 20 s with four results, so the processors are the daemon's and the tuner's alone.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psutil

from tests.benchmarks import subject
from tests.benchmarks.table import FLOOR, Table, at_most
from tests.live_daemon import Daemon

AT_ONCE = (200, 600, 2000, 5000)
#: Trials are made in this number of waves.
WAVES = 3
#: Seconds of a trial.
DURATION_S = 20
_QUESTION_PAUSE_S = 0.1


def measure(folder: Path, table: Table) -> None:
    narrow: float | None = None
    for at_once in AT_ONCE:
        cpu_ms, ratio, answers = run(folder / str(at_once), at_once)
        name = f"{at_once:,} trials of {DURATION_S} s at a time"
        narrow = narrow or cpu_ms
        table.row(
            f"{name}: CPU ms of the daemon per trial; floor: {AT_ONCE[0]}", cpu_ms, at_most(1.5, FLOOR), floor=narrow
        )
        table.row(f"{name}: time, in ideal times", ratio, at_most(1.1))
        table.row(f"{name}: ms until the API answers, 98 %", answers[int(len(answers) * 0.98)], at_most(100))
        table.row(f"{name}: ms until the API answers, longest", answers[-1])
    table.row("seconds until the daemon answers again, 2,000 trials running", restart(folder / "restart", 2000))


def config(at_once: int, trials: int) -> dict[str, object]:
    rule = {"duration": DURATION_S, "exitCode": 0, "results": [0.1, 0.2, 0.3], "result": 0.5}
    service = {"platform": "scripted", "trials": [rule]}
    return {**subject.config(trials=trials, at_once=at_once), "trainingService": service}


def run(folder: Path, at_once: int) -> tuple[float, float, list[float]]:
    """(CPU ms per trial, time in ideal times, ms of each answer in ascending order)."""
    trials = at_once * WAVES
    with subject.running(folder) as daemon:
        before_s = _cpu_s(daemon)
        begun = time.monotonic()
        id_ = daemon.create(config(at_once, trials), folder / "code")
        with _Questions(daemon, id_) as questions:
            daemon.wait(id_, "DONE", timeout_s=900)
        taken_s = time.monotonic() - begun
        cpu_ms = (_cpu_s(daemon) - before_s) / trials * 1000
        ((missing,),) = daemon.rows(id_, "SELECT sum(final_data IS NULL) FROM trials")
        assert missing == 0
    return cpu_ms, taken_s / (DURATION_S * WAVES), sorted(questions.answers_ms)


def restart(folder: Path, at_once: int) -> float:
    with subject.running(folder) as daemon:
        id_ = daemon.create(config(at_once, at_once), folder / "code")
        daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING", 0) > at_once * 0.99)
        daemon.kill()
        begun = time.monotonic()
        daemon.start()
        daemon.status(id_)
        return time.monotonic() - begun


def _cpu_s(daemon: Daemon) -> float:
    assert daemon.process is not None
    return subject.runtime_s(psutil.Process(daemon.process.pid))


class _Questions(threading.Thread):
    """Asks for the experiment and a page of its trials, as a web page does."""

    def __init__(self, daemon: Daemon, id_: str) -> None:
        super().__init__()
        self._daemon, self._paths = daemon, (f"/experiments/{id_}", f"/experiments/{id_}/trials?limit=50")
        self._over = threading.Event()
        self.answers_ms: list[float] = []

    def __enter__(self) -> _Questions:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(_QUESTION_PAUSE_S):
            for path in self._paths:
                begun = time.monotonic()
                self._daemon.call("GET", path)
                self.answers_ms.append((time.monotonic() - begun) * 1000)
