"""The name by which a manager's folders on other machines are known: one per data directory.

A data directory that is moved takes it along; a copy gets one of its own, or two daemons would take each other's place
on those machines, and the copy would end jobs of the original. Where the original cannot be seen from here, machines
notice: they are told the place of the directory, and take no other one until a person has said that it was moved.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from trial_runner.wire import foreign_files

log = logging.getLogger(__name__)

#: The identity of a manager that has none yet; nothing of it is anywhere.
NOBODY = "nobody"
_FILE = "identity"
#: The place of the identity's file when a daemon saw it last: ``{"directory": absolute, "inode": number, "claimed_ms":
#: when a person said last that it was moved there, 0: never}``.
_PLACE = "identity.place"
_MACHINE_ID = Path("/etc/machine-id")


def of(data_directory: Path) -> str:
    """The id of a data directory, made once; a copy of a directory that is still there gets another one.

    Raises OSError.
    """
    path = data_directory / _FILE
    if not path.exists():
        _make(data_directory)
    elif (original := _original(data_directory)) is not None:
        before = known(data_directory)
        _make(data_directory)
        log.warning(
            "%s is a copy of %s, which is still there: on other machines it has the name %s of its own from now on, not"
            " %s; trials that run there stay those of %s",
            data_directory,
            original,
            known(data_directory),
            before,
            original,
        )
    _note_place(data_directory)
    return path.read_text(encoding="ascii").strip()


def known(data_directory: Path) -> str:
    """The id of a data directory, without making one."""
    with suppress(OSError, ValueError):
        return (data_directory / _FILE).read_text(encoding="ascii").strip()
    return NOBODY


def place(data_directory: Path, run: str = "") -> dict[str, Any]:
    """Where the data directory is, for machines: see `trial_runner.keeper.arrival`. `run`: of the daemon that works on
    it; empty: none does. Raises OSError."""
    return {"host": socket.gethostname(), "machine": _machine(), "run": run, **_place_here(data_directory)}


def shown_to_machines(data_directory: Path) -> tuple[str, Callable[[], Mapping[str, object]] | None]:
    """The id and the place with which the next daemon will come to machines, for a look at them; nothing is changed.

    Where that will give the directory another id, as it has none or is a copy, no machine knows it yet.
    """
    if known(data_directory) == NOBODY or _original(data_directory) is not None:
        return NOBODY, None
    return known(data_directory), partial(place, data_directory)


def claim(data_directory: Path) -> None:
    """Notes that the directory was moved here, for good: machines take this place from now on. Raises OSError."""
    of(data_directory)
    _write_place(data_directory, {**_place_here(data_directory), "claimed_ms": time.time_ns() // 1_000_000})


def separate(data_directory: Path) -> str:
    """Gives the directory, a copy, an identity of its own, which it answers. Raises OSError."""
    _make(data_directory)
    _note_place(data_directory)
    return known(data_directory)


def _machine() -> str:
    """A name of this machine that tells nobody which it is; empty: it has none, as in many containers."""
    try:
        found = _MACHINE_ID.read_bytes().strip()
    except OSError:
        return ""
    return hashlib.sha256(b"nni-manager " + found).hexdigest()[:16] if found else ""


def _make(data_directory: Path) -> None:
    foreign_files.write_whole(str(data_directory), _FILE, secrets.token_hex(4).encode())


def _original(data_directory: Path) -> Path | None:
    """The data directory of which this one is a copy; None: it is none, or nobody can tell."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        place = _noted_place(data_directory)
        original, inode = Path(place["directory"]), place["inode"]
        is_this = os.path.samefile(original, data_directory)
        is_there = (original / _FILE).stat().st_ino == inode and known(original) == known(data_directory)
        return original if is_there and not is_this else None
    return None


def _note_place(data_directory: Path) -> None:
    here = _place_here(data_directory)
    if _noted_place(data_directory) != here:
        _write_place(data_directory, here)


def _place_here(data_directory: Path) -> dict[str, Any]:
    claimed_ms = _noted_place(data_directory).get("claimed_ms", 0)
    inode = (data_directory / _FILE).stat().st_ino
    return {"directory": os.path.realpath(data_directory), "inode": inode, "claimed_ms": claimed_ms}


def _noted_place(data_directory: Path) -> dict[str, Any]:
    """What is written down; empty: nothing, or nobody can read it."""
    with suppress(OSError, ValueError):
        place = json.loads((data_directory / _PLACE).read_text(encoding="utf-8"))
        if isinstance(place, dict):
            return place
    return {}


def _write_place(data_directory: Path, place: Mapping[str, Any]) -> None:
    foreign_files.write_whole(str(data_directory), _PLACE, json.dumps(place).encode())
