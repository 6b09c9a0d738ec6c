"""The same trials with us: a real daemon, keeper and tuner host, seen through the API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks import lite
from tests.live_daemon import Daemon


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    trials_per_s: float
    #: CPU milliseconds of daemon, keeper and tuner host for each trial.
    cpu_ms: dict[str, float]
    #: Resident MiB of the same at the end.
    memory_mib: dict[str, float]
    #: Trials without a final result; must be 0.
    missing: int


@contextmanager
def running(folder: Path) -> Iterator[Daemon]:
    folder.mkdir(parents=True)
    daemon = Daemon(folder / "data")
    daemon.data.mkdir()
    lite.write(folder / "code")
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.call("POST", "/experiments/stop")
        daemon.terminate()


def lite_trials(folder: Path, trials: int, at_once: int) -> Run:
    """From the first trial's creation to the last one's end; start-up of tuner and keeper is not in it."""
    with running(folder) as daemon:
        warm_up = daemon.create(config(trials=4, at_once=2), folder / "code")
        daemon.wait(warm_up, "DONE")
        before = cpu_s(daemon)
        id_ = daemon.create(config(trials=trials, at_once=at_once), folder / "code")
        daemon.wait(id_, "NO_MORE_TRIAL", "DONE", timeout_s=600)
        tuner = cpu_s(daemon, id_)
        daemon.wait(id_, "DONE", timeout_s=600)
        after = {**cpu_s(daemon), **{name: tuner[name] for name in tuner if name == "tuner"}}
        memory = _memory(daemon)
        ((first, last, missing),) = daemon.rows(
            id_, "SELECT min(created_ms), max(ended_ms), sum(final_data IS NULL) FROM trials"
        )
        cpu = {name: (after[name] - before.get(name, 0)) / trials * 1000 for name in after}
    return Run(trials_per_s=trials / ((last - first) / 1000), cpu_ms=cpu, memory_mib=memory, missing=missing)


def config(*, trials: int, at_once: int, command: str = lite.COMMAND) -> dict[str, Any]:
    return {
        "searchSpace": lite.SPACE,
        "trialCommand": command,
        "trialCodeDirectory": ".",
        "trialConcurrency": at_once,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random"},
        "trainingService": {"platform": "local"},
    }


def processes(daemon: Daemon, id_: str = "") -> dict[str, psutil.Process]:
    """daemon, keeper and, while it lives, tuner."""
    assert daemon.process is not None
    own = psutil.Process(daemon.process.pid)
    found = {"daemon": own, "keeper": psutil.Process(daemon.keeper_pid())}
    for child in own.children():
        if any("tuner_process" in part for part in child.cmdline()):
            found["tuner"] = child
    return found


def idle_percent(daemon: Daemon, seconds: float) -> float:
    """CPU of all our processes over a quiet stretch, in per cent of one core, from the scheduler's own clock."""
    before = {name: _runtime_s(process) for name, process in processes(daemon).items()}
    time.sleep(seconds)
    after = {name: _runtime_s(process) for name, process in processes(daemon).items()}
    return sum(after[name] - before[name] for name in after if name in before) / seconds * 100


def cpu_s(daemon: Daemon, id_: str = "") -> dict[str, float]:
    """Seconds on a processor of each of our processes so far."""
    return {name: _runtime_s(process) for name, process in processes(daemon, id_).items()}


def _runtime_s(process: psutil.Process) -> float:
    """Seconds on a processor, all threads, in nanosecond steps."""
    total = 0
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def _memory(daemon: Daemon) -> dict[str, float]:
    return {name: process.memory_info().rss / 2**20 for name, process in processes(daemon).items()}
