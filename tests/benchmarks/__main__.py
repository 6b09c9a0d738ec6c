"""Every figure of the table in README, beside its floor, in one run. Takes some minutes on an idle machine."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import floors, lite, metrics, subject
from tests.live_daemon import Daemon

REPEATS = 3
TRIALS = 200


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="nni-manager-bench-"))
    print(f"{'figure':58} {'floor':>10} {'ours':>10} {'ratio':>7}   bar")
    try:
        _throughput(folder)
        _against_optuna(folder)
        _thousand(folder)
        _one_daemon(folder / "one")
        metrics.report(folder / "metrics", _row)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _throughput(folder: Path) -> None:
    for at_once in (1, 8):
        ratios, ours, bare, cpu = [], [], [], []
        for repeat in range(REPEATS):
            place = folder / f"lite-{at_once}-{repeat}"
            lite.write(place / "floor")
            bare.append(floors.plain_loop(place / "floor", TRIALS, at_once))
            run = subject.lite_trials(place / "ours", TRIALS, at_once)
            assert run.missing == 0
            ours.append(run.trials_per_s)
            ratios.append(ours[-1] / bare[-1])
            cpu.append(sum(run.cpu_ms.values()))
        _row(f"lite trials/s, {at_once} at a time", _median(bare), _median(ours), _median(ratios), "≥ 0.6")
        _row(f"CPU ms a lite trial, {at_once} at a time", None, _median(cpu), None, "≤ 4")


def _against_optuna(folder: Path) -> None:
    for name, bar in (("in-memory study", "≥ 0.9"), ("SQLite study", "≥ 1.5")):
        ratios, ours, theirs = [], [], []
        for repeat in range(REPEATS):
            place = folder / f"optuna-{name.split()[0]}-{repeat}"
            storage = None if "memory" in name else f"sqlite:///{place}.db"
            theirs.append(floors.optuna_loop(place / "theirs", TRIALS, 8, storage=storage))
            ours.append(subject.lite_trials(place / "ours", TRIALS, 8).trials_per_s)
            ratios.append(ours[-1] / theirs[-1])
        _row(
            f"lite trials/s against Optuna's {name}, 8 at a time", _median(theirs), _median(ours), _median(ratios), bar
        )


def _thousand(folder: Path) -> None:
    run = subject.lite_trials(folder / "thousand", 1000, 8)
    shares = ", ".join(f"{name} {size:.0f}" for name, size in run.memory_mib.items())
    _row("results missing of 1,000 lite trials", None, run.missing, None, "0")
    _row(f"memory MiB after 1,000 trials ({shares})", None, sum(run.memory_mib.values()), None, "≤ 120")
    cpu = ", ".join(f"{name} {ms:.2f}" for name, ms in run.cpu_ms.items())
    _row(f"CPU ms a trial ({cpu})", None, sum(run.cpu_ms.values()), None, "≤ 4")


def _one_daemon(folder: Path) -> None:
    with subject.running(folder) as daemon:
        cold = _seconds(lambda: _first_final(daemon, folder))
        warm = _seconds(lambda: _first_final(daemon, folder))
        _row("create → first final result, s, keeper not running", None, cold, None, "≤ 0.88")
        _row("create → first final result, s, daemon at work", None, warm, None, "≤ 0.3")
        sleeper = daemon.create(subject.config(trials=1, at_once=1, command="sleep 1000"), folder / "code")
        daemon.wait_for(sleeper, lambda state: state["counts"].get("RUNNING"))
        time.sleep(2)
        _row("idle CPU, % of a core, one sleeping trial", None, subject.idle_percent(daemon, 20), None, "≤ 0.1")
        daemon.call("POST", f"/experiments/{sleeper}/stop")
        four = daemon.create(subject.config(trials=4, at_once=4, command="sleep 1000"), folder / "code")
        daemon.wait_for(four, lambda state: state["counts"].get("RUNNING") == 4)
        stop = _seconds(lambda: daemon.call("POST", f"/experiments/{four}/stop"))
        _row("stop with four running trials, s", None, stop, None, "≤ 0.3")


def _first_final(daemon: Daemon, folder: Path) -> None:
    """Asked for again and again, as events are paced."""
    id_ = daemon.create(subject.config(trials=1, at_once=1), folder / "code")
    with daemon.client() as client:
        while client.get(f"/api/v1/experiments/{id_}").json()["best"] is None:
            time.sleep(0.002)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _row(name: str, floor: float | None, ours: float, ratio: float | None, bar: str) -> None:
    cells = [f"{value:.3g}" if value is not None else "" for value in (floor, ours, ratio)]
    print(f"{name:58} {cells[0]:>10} {cells[1]:>10} {cells[2]:>7}   {bar}", flush=True)


if __name__ == "__main__":
    main()
