"""`python -m nni_manager.app.doctor.tried_algorithms KIND NAME...`: tries tuners or assessors in turn, for the doctor.

Each is tried in a fork, so that imports of one do not affect another. It prints a line of JSON for each: name, seconds
until it was ready or the error, and the command that installs a missing extra.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from typing import Any

from nni_manager.domain.errors import MissingExtra
from trial_runner.wire.shortage import tried_again

#: Seconds after which the kernel ends a fork.
TIMEOUT_S = 60


def main(kind: str, *names: str) -> None:
    catalogue = importlib.import_module(f"nni_manager.{kind}s.registry").CATALOGUE
    for name in names:
        if (pid := tried_again(os.fork)) == 0:
            signal.alarm(TIMEOUT_S)
            _try(kind, name, catalogue)
            os._exit(0)
        if error := _error(os.waitpid(pid, 0)[1]):
            _tell(name, 0.0, error)


def _try(kind: str, name: str, catalogue: Any) -> None:
    """Try an algorithm, including the first proposal, which imports the large libraries."""
    began = time.perf_counter()
    error = install = ""
    try:
        found = catalogue.find(name)
        made = found.create(dict.fromkeys(found.required, "maximize"))
        if kind == "tuner":
            made.update_search_space({"x": {"_type": "choice", "_value": [1, 2]}})
            made.propose(0)
    except MissingExtra as missing:
        error, install = missing.sentence, missing.command
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}"
    _tell(name, time.perf_counter() - began, error, install)


def _error(status: int) -> str:
    """The error of a fork that did not report one itself, or empty."""
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGALRM:
        return f"it was not ready within {TIMEOUT_S} s"
    return f"exit code {code}" if code else ""


def _tell(name: str, seconds: float, error: str, install: str = "") -> None:
    print(json.dumps([name, seconds, error, install]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
