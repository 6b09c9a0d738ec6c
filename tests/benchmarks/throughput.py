"""Rate and cost of lite trials, compared with a plain loop, NNI 3.0 and Optuna."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks import floors, lite, subject, upstream
from tests.benchmarks.table import FLOOR, Table, at_least, at_most

REPEATS = 3
TRIALS = 200
#: Concurrency → number of trials: NNI takes a second per turn.
_NNI_TRIALS = {1: 15, 8: 80}


def measure(folder: Path, table: Table) -> None:
    for at_once, nni_trials in _NNI_TRIALS.items():
        nni_rate, nni_cpu = upstream.lite_trials(folder / f"nni-{at_once}", nni_trials, at_once)
        runs, bare = [], []
        for repeat in range(REPEATS):
            place = folder / f"lite-{at_once}-{repeat}"
            lite.write(place / "floor")
            bare.append(floors.plain_loop(place / "floor", TRIALS, at_once))
            runs.append(subject.lite_trials(place / "ours", TRIALS, at_once))
        assert not any(run.missing for run in runs)
        table.row(
            f"lite trials/s, {at_once} at a time",
            [run.trials_per_s for run in runs],
            at_least(0.6, FLOOR),
            floor=[floor.trials_per_s for floor in bare],
            nni=nni_rate,
        )
        table.row(
            f"CPU ms a lite trial, {at_once} at a time",
            [sum(run.cpu_ms.values()) for run in runs],
            at_most(4),
            floor=[floor.cpu_ms for floor in bare],
            nni=nni_cpu,
        )
        table.row(
            f"CPU ms of an experiment's creation, its first trial included, {at_once} at a time",
            [run.creation_ms for run in runs],
            at_most(250),
        )


def against_optuna(folder: Path, table: Table) -> None:
    for name, bar in (("in-memory study", 0.9), ("SQLite study", 1.5)):
        ours, theirs = [], []
        for repeat in range(REPEATS):
            place = folder / f"optuna-{name.split()[0]}-{repeat}"
            storage = None if "memory" in name else f"sqlite:///{place}.db"
            theirs.append(floors.optuna_loop(place / "theirs", TRIALS, 8, storage=storage))
            ours.append(subject.lite_trials(place / "ours", TRIALS, 8).trials_per_s)
        table.row(f"lite trials/s, 8 at a time; floor: Optuna's {name}", ours, at_least(bar, FLOOR), floor=theirs)
