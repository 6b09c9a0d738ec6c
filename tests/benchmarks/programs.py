"""`optimize` compared with the loops of Optuna and Ray, and many processes that report through NNI's SDK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import nni3
from tests.benchmarks import lite, subject, upstream
from tests.benchmarks.table import FLOOR, NNI, Table, at_least, at_most
from tests.live_daemon import Daemon

REPEATS = 3
CALLS, AT_ONCE = 100, 8
#: Ray imports itself for each trial, which takes seconds.
RAY_CALLS = 16
#: Variable with a Python that has Ray: `python -m venv ray && ray/bin/pip install "ray[tune]"`.
RAY = "BENCH_RAY_PYTHON"
PROCESSES, RESULTS = 50, 200
_PATIENCE_S = 30

#: The function of all programs: sleeps ten milliseconds.
_FUNCTION = """
import json, sys, time
calls, at_once = int(sys.argv[1]), int(sys.argv[2])
def loss(x):
    time.sleep(0.01)
    return (x - 2) ** 2
def tell(seconds, done):
    print(json.dumps({"seconds": seconds, "done": done}))
"""
_OURS = """
import nni_manager
space = {"x": {"_type": "uniform", "_value": [-9, 9]}}
started = time.perf_counter()
found = nni_manager.optimize(
    lambda parameters: loss(parameters["x"]), space, trials=calls, concurrency=at_once, progress=False,
    data_dir=sys.argv[3])
seconds = time.perf_counter() - started
tell(seconds, sum(trial.status == "SUCCEEDED" and trial.value is not None for trial in found.trials()))
"""
_OPTUNA = """
import optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study()
started = time.perf_counter()
study.optimize(lambda trial: loss(trial.suggest_float("x", -9, 9)), n_trials=calls, n_jobs=at_once)
tell(time.perf_counter() - started, sum(trial.value is not None for trial in study.trials))
"""
_RAY = """
import logging, ray
from ray import tune
ray.init(num_cpus=at_once, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
def trial(config):
    tune.report({"loss": loss(config["x"])})
tuner = tune.Tuner(
    trial, param_space={"x": tune.uniform(-9, 9)},
    tune_config=tune.TuneConfig(num_samples=calls, max_concurrent_trials=at_once, metric="loss", mode="min"),
    run_config=tune.RunConfig(verbose=0, storage_path=sys.argv[3]))
started = time.perf_counter()
results = tuner.fit()
tell(time.perf_counter() - started, sum(result.metrics is not None and "loss" in result.metrics for result in results))
"""
#: The same work as a hand-written trial command.
_LITE = f"{lite.PYTHON} -I -S lite.py; sleep 0.01"


def measure(folder: Path, table: Table) -> None:
    """`optimize` from call to return, with a running daemon, and with Ray running."""
    ours, lost, by_hand, optuna = [], 0, [], []
    for repeat in range(REPEATS):
        place = folder / str(repeat)
        with subject.running(place) as daemon:
            by_hand.append(_by_hand(daemon, place / "code"))
            rate, missing = _loop(sys.executable, _OURS, str(daemon.data))
        ours.append(rate)
        lost += missing
        optuna.append(_loop(sys.executable, _OPTUNA)[0])
    name = f"`optimize`, {CALLS} calls of a function of 10 ms, {AT_ONCE} at a time: trials/s"
    table.row(f"{name}; floor: lite trials of an experiment file", ours, at_least(0.5, FLOOR), floor=by_hand)
    table.row(f"{name}; floor: Optuna's `optimize(n_jobs={AT_ONCE})`, threads of one process", ours, floor=optuna)
    if ray_python := os.environ.get(RAY):
        ray, _ = _loop(ray_python, _RAY, str(folder / "ray"), calls=RAY_CALLS)
        table.row(f"{name}; floor: Ray Tune, {RAY_CALLS} calls", ours, at_least(1, FLOOR), floor=ray)
    else:
        print(f"| {name}; floor: Ray Tune: left out, as {RAY} names no Python with ray | | | | | | |", flush=True)
    table.row(f"`optimize`: trials lost of {REPEATS * CALLS}", lost, at_most(0))


def _loop(python: str, source: str, *arguments: str, calls: int = CALLS) -> tuple[float, int]:
    """(trials a second, calls without a result) of a program."""
    command = [python, "-c", _FUNCTION + source, str(calls), str(AT_ONCE), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    return calls / told["seconds"], calls - told["done"]


def _by_hand(daemon: Daemon, code: Path) -> float:
    """Duration from submission to end, seen by a program."""
    started = time.perf_counter()
    daemon.wait(
        daemon.create(subject.config(trials=CALLS, at_once=AT_ONCE, command=_LITE), code), "DONE", timeout_s=300
    )
    return CALLS / (time.perf_counter() - started)


#: Reports when the file `go` exists, after all processes have imported the SDK. It keeps running, because NNI loses
#: results not stored before a trial's end.
_REPORTER = """
import os, sys, time
import nni
place, count = sys.argv[1], int(sys.argv[2])
nni.get_next_parameter()
open(os.path.join(place, "ready-" + nni.get_trial_id()), "w").close()
while not os.path.exists(os.path.join(place, "go")):
    time.sleep(0.02)
for number in range(count):
    nni.report_intermediate_result(number)
while not os.path.exists(os.path.join(place, "end")):
    time.sleep(0.1)
nni.report_final_result(count)
"""


def many_reporters(folder: Path, table: Table) -> None:
    """Rates from the first report to the last that the API shows."""
    with upstream.Nni(folder / "nni") as nni:
        place = _write(nni.code)
        nni.create(_config(place))
        nni_stored, nni_rate = _let_report(place, lambda: len(nni.get("metric-data")))
    with subject.running(folder / "ours") as daemon:
        place = _write(folder / "ours" / "code")
        id_ = daemon.create(_config(place), place)
        stored, rate = _let_report(place, lambda: _stored(daemon, id_))
        daemon.wait(id_, "DONE", timeout_s=300)
    total = PROCESSES * RESULTS
    name = f"{PROCESSES} processes with NNI's SDK at once, {RESULTS} results each"
    table.row(f"{name}: metrics/s until visible", rate, at_least(5, NNI), nni=nni_rate)
    table.row(f"{name}: lost", total - stored, at_most(0), nni=total - nni_stored)


def _write(code: Path) -> Path:
    code.mkdir(parents=True, exist_ok=True)
    (code / "reporter.py").write_text(_REPORTER)
    return code


def _config(place: Path) -> dict[str, Any]:
    command = f"{nni3.interpreter()} reporter.py {place} {RESULTS}"
    return subject.config(trials=PROCESSES, at_once=PROCESSES, command=command)


def _let_report(place: Path, stored: Callable[[], int]) -> tuple[int, float]:
    """(visible results, results per second); NNI sometimes loses some, which are not awaited."""
    deadline = time.monotonic() + 600
    while len(list(place.glob("ready-*"))) < PROCESSES:
        assert time.monotonic() < deadline, "not all trials have begun"
        time.sleep(0.1)
    (place / "go").touch()
    began = changed = time.perf_counter()
    seen = 0
    while seen < PROCESSES * RESULTS and time.perf_counter() - changed < _PATIENCE_S:
        if (now := stored()) > seen:
            seen, changed = now, time.perf_counter()
        time.sleep(0.05)
    (place / "end").touch()
    return seen, seen / (changed - began)


def _stored(daemon: Daemon, id_: str) -> int:
    return sum(trial["intermediates"] for trial in daemon.call("GET", f"/experiments/{id_}/trials?limit=100")["trials"])
