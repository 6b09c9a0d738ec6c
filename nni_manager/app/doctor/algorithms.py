"""Every tuner and assessor that comes with the program: can it be imported and used, and how long does that take."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from nni_manager.app.doctor.finding import CheckFinding, failure, ok, warning
from nni_manager.assessors.registry import CATALOGUE as ASSESSORS
from nni_manager.domain.algorithm import Algorithm
from nni_manager.tuners.registry import CATALOGUE as TUNERS

#: As a tuner's own process does it, up to the first proposal, for which the heavy libraries are imported. What is
#: printed is the time in seconds, or the error.
_PROGRAM = """
import importlib, sys, time
began = time.perf_counter()
try:
    kind, name = sys.argv[1:]
    made = importlib.import_module(f"nni_manager.{kind}s.registry").find(name).create({})
    if kind == "tuner":
        made.update_search_space({"x": {"_type": "choice", "_value": [1, 2]}})
        made.propose(0)
except BaseException as error:
    sys.exit(f"{type(error).__name__}: {error}")
print(time.perf_counter() - began)
"""
_TIMEOUT_S = 60.0
#: Each experiment's start waits for it.
_SLOW_S = 5.0


def look() -> Iterator[CheckFinding]:
    for catalogue in (TUNERS, ASSESSORS):
        for algorithm in catalogue.built_in:
            yield _use(catalogue.kind, algorithm)


def _use(kind: str, algorithm: Algorithm) -> CheckFinding:
    command = [sys.executable, "-P", "-c", _PROGRAM, kind, algorithm.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        sentence = f"{algorithm.name} was not ready within {_TIMEOUT_S:.0f} s"
        return failure(kind, sentence, "see whether the disk of your Python environment answers")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        sentence = f"{algorithm.name} cannot be used ({lines[-1]})"
        return failure(kind, sentence, "install nni-manager again; what it needs comes with it")
    seconds = float(done.stdout.split()[-1])
    if seconds > _SLOW_S:
        return warning(kind, f"{algorithm.name} takes {seconds:.1f} s to get ready", "a faster disk would help")
    return ok(kind, f"{algorithm.name} is ready in {seconds:.2f} s")
