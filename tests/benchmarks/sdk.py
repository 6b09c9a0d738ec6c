"""Trials that `import nni`: with our stand-in, with the real SDK under us, and with the real SDK under NNI."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from tests import nni3
from tests.benchmarks import floors, lite, subject, upstream
from tests.benchmarks.table import FLOOR, NNI, Bar, Table, at_least, at_most

REPEATS = 3
_TRIAL = """
import nni
nni.report_final_result(nni.get_next_parameter()["x"])
"""
_STAND_IN_TRIALS, _UPSTREAM_TRIALS, _NNI_TRIALS = 60, 8, 10
_IMPORTS = 15


def measure(folder: Path, table: Table) -> None:
    nni_rate = _nni(folder / "nni")
    bars = (at_least(20, NNI),)
    _compare(folder / "stand-in", table, "with the stand-in", lite.PYTHON, _STAND_IN_TRIALS, nni_rate, *bars)
    python = str(nni3.interpreter())
    _compare(folder / "upstream", table, "with NNI's SDK", python, _UPSTREAM_TRIALS, nni_rate, at_least(0.9, FLOOR))
    table.row("import of the stand-in, ms over bare Python", _import_ms(), at_most(30))


def _compare(folder: Path, table: Table, name: str, python: str, trials: int, nni_rate: float, *bars: Bar) -> None:
    command, ours, bare = f"{python} sdk.py", [], []
    for repeat in range(REPEATS):
        place = folder / str(repeat)
        _write(place / "floor")
        bare.append(floors.plain_loop(place / "floor", trials, 1, command).trials_per_s)
        _write(place / "ours" / "code")
        run = subject.lite_trials(place / "ours", trials, 1, command)
        assert run.missing == 0
        ours.append(run.trials_per_s)
    table.row(f"`import nni` trials/s, 1 at a time, {name}", ours, *bars, floor=bare, nni=nni_rate)


def _nni(folder: Path) -> float:
    with upstream.Nni(folder) as nni:
        _write(nni.code)
        nni.create(subject.config(trials=_NNI_TRIALS, at_once=1, command=f"{nni3.interpreter()} sdk.py"))
        nni.wait("DONE")
        return upstream.rate(nni)


def _write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sdk.py").write_text(_TRIAL)


def _import_ms() -> list[float]:
    """Measured in pairs, because the machine's speed drifts."""
    environment = {**os.environ, "PYTHONPATH": str(floors.STAND_IN)}

    def seconds(code: str) -> float:
        started = time.perf_counter()
        subprocess.run([lite.PYTHON, "-c", code], env=environment, check=True)
        return time.perf_counter() - started

    return [(seconds("import nni") - seconds("pass")) * 1000 for _ in range(_IMPORTS)]
