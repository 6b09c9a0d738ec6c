"""Checks the installation: interpreter, SQLite, the `nnictl` on the PATH, tuners, assessors, clock."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from nni_manager import __version__
from nni_manager.app.doctor import tried_algorithms
from nni_manager.app.doctor.finding import CheckFinding, failure, note, ok, warning
from nni_manager.assessors.registry import CATALOGUE as ASSESSORS
from nni_manager.tuners.registry import CATALOGUE as TUNERS
from trial_runner.wire.shortage import tried_again

_OLDEST = (3, 11)
#: The first version with RETURNING and built-in JSON functions.
_OLDEST_SQLITE = (3, 38)


def look_at_python() -> Iterator[CheckFinding]:
    found = f"nni-manager {__version__} on Python {platform.python_version()} ({sys.executable})"
    if sys.version_info < _OLDEST:
        yield failure("python", found, f"install it with Python {_numbers(_OLDEST)} or newer")
    elif sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        sentence = f"{found} with SQLite {sqlite3.sqlite_version}, which is too old"
        yield failure("python", sentence, f"use a Python whose SQLite is {_numbers(_OLDEST_SQLITE)} or newer")
    else:
        yield ok("python", f"{found}, SQLite {sqlite3.sqlite_version}")


def _numbers(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


_COMMAND = "nnictl"
_INSTEAD = "run nni-manager instead of nnictl; it has every command"
#: Module in the script that pip creates for a command → the owner of the command.
_OWNERS = {b"nni_manager": "this program", b"nni.tools": "NNI itself"}
_MOST = 65536


def look_at_command(environment: Mapping[str, str]) -> Iterator[CheckFinding]:
    found = shutil.which(_COMMAND, path=environment.get("PATH", os.defpath))
    ours = Path(sys.executable).with_name(_COMMAND)
    if found is None:
        yield warning(_COMMAND, "no nnictl is on the PATH", f"{_INSTEAD}, or put {ours.parent} on the PATH")
    elif (owner := _owner(found)) == "this program" and _is_same(found, ours):
        yield ok(_COMMAND, f"the first nnictl on the PATH is this program's ({found})")
    elif owner == "this program":
        sentence = f"the first nnictl on the PATH ({found}) belongs to another installation of this program"
        yield warning(_COMMAND, sentence, f"put {ours.parent} first on the PATH")
    else:
        yield warning(
            _COMMAND, f"the first nnictl on the PATH ({found}) belongs to {owner or 'another program'}", _INSTEAD
        )


def _owner(path: str) -> str:
    """The owner of a command's script; empty: unknown."""
    try:
        with open(path, "rb") as file:
            text = file.read(_MOST)
    except OSError:
        return ""
    return next((owner for mark, owner in _OWNERS.items() if mark in text), "")


def _is_same(found: str, ours: Path) -> bool:
    try:
        return ours.samefile(found)
    except OSError:
        return False


#: Seconds above which the check warns: each experiment's start waits that long.
_SLOW_S = 5.0


def look_at_algorithms() -> Iterator[CheckFinding]:
    for catalogue in (TUNERS, ASSESSORS):
        names = [algorithm.name for algorithm in catalogue.built_in]
        command = [sys.executable, "-P", "-m", tried_algorithms.__name__, catalogue.kind, *names]
        with tried_again(partial(subprocess.Popen, command, stdout=subprocess.PIPE, text=True)) as process:
            assert process.stdout is not None
            for line in process.stdout:
                yield _judge(catalogue.kind, *json.loads(line))
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)


def _judge(kind: str, name: str, seconds: float, error: str, install: str) -> CheckFinding:
    if install:
        return note(kind, error, install)
    if error:
        sentence = f"{name} cannot be used ({error.splitlines()[-1]})"
        return failure(kind, sentence, "install nni-manager again, with its requirements")
    if seconds > _SLOW_S:
        return warning(kind, f"{name} takes {seconds:.1f} s to start", "use a faster disk")
    return ok(kind, f"{name} starts in {seconds:.2f} s")


#: Seconds for which the wall clock and the monotonic clock are compared; seconds by which they may drift apart.
_WATCHED_S, _APART_S = 0.2, 0.05
#: The clock is wrong if it shows an earlier year.
_FIRST_YEAR = 2024
#: The result of `adjtimex` for an unsynchronised clock (TIME_ERROR).
_UNSYNCHRONISED = 5
#: At least the size of `struct timex`.
_TIMEX_BYTES = 512


def look_at_clock() -> Iterator[CheckFinding]:
    now = time.gmtime()
    if now.tm_year < _FIRST_YEAR:
        yield failure("clock", f"it shows {time.strftime('%Y-%m-%d', now)}, which is in the past", "set the clock")
        return
    apart_s = _drift()
    if apart_s > _APART_S:
        sentence = f"it jumped by {apart_s:.2f} s within {_WATCHED_S:g} s; durations of trials will be wrong"
        yield warning("clock", sentence, "check what sets the clock: two time services may conflict")
    elif _is_synchronised() is False:
        sentence = "it runs evenly, but the kernel reports no synchronization"
        yield warning("clock", sentence, "run a time service if trials run on several machines")
    else:
        yield ok("clock", f"it runs evenly; {time.strftime('%Y-%m-%d %H:%M:%S', now)} UTC")


def _drift() -> float:
    """Seconds by which the wall clock and the monotonic clock drifted apart."""
    wall_s, steady_s = time.time(), time.monotonic()
    time.sleep(_WATCHED_S)
    return abs((time.time() - wall_s) - (time.monotonic() - steady_s))


def _is_synchronised() -> bool | None:
    """Whether the kernel reports a synchronized clock; None if unknown."""
    if sys.platform != "linux":
        return None
    try:
        answer = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))  # all zero: reads only
    except (OSError, AttributeError):
        return None
    return None if answer < 0 else bool(answer != _UNSYNCHRONISED)
