"""The same trials under nni_manager: a real daemon, keeper and tuner host, through the API."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks import lite
from tests.live_daemon import Daemon

#: Seconds after a daemon's start until it has imported its pages, which is not part of a trial's cost.
_PAGES_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    trials_per_s: float
    #: CPU milliseconds of daemon, keeper and tuner host per trial, after the first trials.
    cpu_ms: dict[str, float]
    #: CPU milliseconds of these up to the first trial's end: the experiment's creation, the start of its tuner.
    creation_ms: float
    #: Resident MiB of the same at the end.
    memory_mib: dict[str, float]
    #: Trials without a final result; must be 0.
    missing: int


@contextmanager
def running(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Daemon]:
    """`arguments`: of `serve`; empty: no TCP port. `environment`: additional variables."""
    daemon = Daemon(folder / "data", environment={"HOME": str(folder), **(environment or {})})
    daemon.data.mkdir(parents=True)
    lite.write(folder / "code")
    daemon.start(*arguments)
    time.sleep(_PAGES_S)
    try:
        yield daemon
    finally:
        daemon.call("POST", "/experiments/stop")
        daemon.terminate()


class TunerMeter(threading.Thread):
    """Poll the tuner host, because it has ended when the figures are read."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__()
        assert daemon.process is not None
        self._pid = daemon.process.pid
        self._over = threading.Event()
        self._begin_s = self._last_s = 0.0
        self.memory_mib = 0.0

    def __enter__(self) -> TunerMeter:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    @property
    def cpu_s(self) -> float:
        """CPU seconds since `begin`."""
        return self._last_s - self._begin_s

    def begin(self) -> None:
        """Start measuring; the start of the daemon is not counted."""
        self._begin_s = self._last_s

    def run(self) -> None:
        process: psutil.Process | None = None
        while not self._over.wait(0.05):
            with suppress(psutil.Error, OSError):
                process = process or _tuner(psutil.Process(self._pid))
                if process is not None:
                    seconds, memory = runtime_s(process), process.memory_info().rss / 2**20
                    self._last_s, self.memory_mib = seconds or self._last_s, memory or self.memory_mib


def lite_trials(folder: Path, trials: int, at_once: int, command: str = lite.COMMAND) -> Run:
    """The rate from the first trial's creation to the last one's end, and the costs from the first one's end.

    The costs of creating the experiment and starting its tuner are separate, as in NNI's figures.
    """
    with running(folder) as daemon:
        warm_up = daemon.create(config(trials=4, at_once=2), folder / "code")
        daemon.wait(warm_up, "DONE")
        before = cpu_s(daemon)
        id_ = daemon.create(config(trials=trials, at_once=at_once, command=command), folder / "code")
        with TunerMeter(daemon) as tuner:
            state = daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED"), timeout_s=60)
            begun = cpu_s(daemon)
            tuner.begin()
            daemon.wait(id_, "DONE", timeout_s=600)
        after = cpu_s(daemon)
        memory = {**_memory(daemon), "tuner": tuner.memory_mib}
        ((first, last, missing),) = daemon.rows(
            id_, "SELECT min(created_ms), max(ended_ms), sum(final_data IS NULL) FROM trials"
        )
    others = max(1, trials - state["counts"]["SUCCEEDED"])
    cpu = {name: (after[name] - begun[name]) / others * 1000 for name in ("daemon", "keeper")}
    return Run(
        trials_per_s=trials / ((last - first) / 1000),
        cpu_ms={**cpu, "tuner": tuner.cpu_s / others * 1000},
        creation_ms=(sum(begun.values()) - sum(before.values())) * 1000 - sum(cpu.values()) * (trials - others),
        memory_mib=memory,
        missing=missing,
    )


def config(*, trials: int, at_once: int, command: str = lite.COMMAND) -> dict[str, Any]:
    return {
        "searchSpace": lite.SPACE,
        "trialCommand": command,
        "trialCodeDirectory": ".",
        "trialConcurrency": at_once,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "local"},
    }


def processes(daemon: Daemon) -> dict[str, psutil.Process]:
    """daemon, keeper and, while it lives, tuner."""
    assert daemon.process is not None
    own = psutil.Process(daemon.process.pid)
    found = {"daemon": own, "keeper": psutil.Process(daemon.keeper_pid())}
    tuner = _tuner(own)
    return found if tuner is None else {**found, "tuner": tuner}


def _tuner(own: psutil.Process) -> psutil.Process | None:
    """The tuner host of the daemon; None: not running."""
    found = (child for child in own.children() if any("tuning.process" in part for part in child.cmdline()))
    return next(found, None)


def idle_percent(watched: dict[str, psutil.Process], seconds: float) -> float:
    """CPU use of these processes in a quiet period, in per cent of one core, from the scheduler's clock."""
    before = sum(map(runtime_s, watched.values()))
    time.sleep(seconds)
    return (sum(map(runtime_s, watched.values())) - before) / seconds * 100


def cpu_s(daemon: Daemon) -> dict[str, float]:
    """CPU seconds so far of each of our processes."""
    return {name: runtime_s(process) for name, process in processes(daemon).items()}


def runtime_s(process: psutil.Process) -> float:
    """CPU seconds of all threads, with nanosecond resolution."""
    total = 0
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def _memory(daemon: Daemon) -> dict[str, float]:
    return {name: process.memory_info().rss / 2**20 for name, process in processes(daemon).items()}
