"""The name of a manager's folders on other machines, one per data directory.

A moved data directory keeps its name. A copy gets another: otherwise two daemons would replace each other on those
machines, and the copy would end jobs of the original. If the original is not visible here, the machines detect a copy:
they know the directory's place, and refuse another one until a user has confirmed the move.

The name is stored in a file and in the index; each restores the other. If both are lost, a new name is created. The
experiments of the lost name stay on hold until a user has decided between the names.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from trial_runner.wire import foreign_files

log = logging.getLogger(__name__)

#: The identity of a manager without a name, and so without folders on other machines.
NOBODY = "nobody"
_FILE = "identity"
#: File with the last place of the identity that a daemon saw: ``{"directory": absolute, "inode": number,
#: "claimed_ms": when a user last confirmed a move, 0: never}``.
_PLACE = "identity.place"
#: File with the former names of this directory: ``{"former": [names], "is_lost": whether the last one was
#: lost and no user has settled it}``.
_HISTORY = "identity.history"
_NAME = re.compile("[0-9a-f]{8}")
_MACHINE_ID = Path("/etc/machine-id")


def restore(data_directory: Path, name: str, directory: str) -> None:
    """Write the name to its file if the file is missing or damaged.

    `name`, `directory`: from the index, or empty. A copy of an existing directory gets no name here. Raises OSError.
    """
    if not name or known(data_directory) != NOBODY:
        return
    original = Path(directory)
    if original != Path(os.path.realpath(data_directory)) and known(original) == name:
        return
    _write(data_directory, name)
    log.warning("the file %s was lost; its name %s is restored from the index", data_directory / _FILE, name)


def of(data_directory: Path, *, has_open: bool = False) -> str:
    """The id of a data directory, created once. A copy of an existing directory gets another one.

    `has_open`: it has open experiments, so a missing id was lost. Raises OSError.
    """
    if known(data_directory) == NOBODY:
        if has_open:  # first: without this note, the new name would count as the right one
            _write_history(data_directory, former(data_directory), is_lost=True)
        _make(data_directory)
        if has_open:
            log.error(
                "the identity of %s was lost, in its file and in the index; it is now %s. Open experiments are on hold:"
                " run `nni-manager identity --moved` or `--own`",
                data_directory,
                known(data_directory),
            )
    elif (original := original_of(data_directory)) is not None:
        before = known(data_directory)
        _make(data_directory)
        log.warning(
            "%s is a copy of %s, which still exists. On other machines, the copy now has its own name %s instead of"
            " %s; running trials there belong to %s",
            data_directory,
            original,
            known(data_directory),
            before,
            original,
        )
    _note_place(data_directory)
    return known(data_directory)


def known(data_directory: Path) -> str:
    """The id of a data directory, without creating one; NOBODY if it has none or its file is damaged."""
    with suppress(OSError, ValueError):
        name = (data_directory / _FILE).read_text(encoding="ascii").strip()
        if _NAME.fullmatch(name):
            return name
    return NOBODY


def former(data_directory: Path) -> frozenset[str]:
    """Other names whose experiments belong to this directory, according to a user."""
    return frozenset(map(str, _history(data_directory).get("former", ())))


def is_lost(data_directory: Path) -> bool:
    """Whether the last name was lost, and no user has decided whether the current one replaces it."""
    return bool(_history(data_directory).get("is_lost", False))


def place(data_directory: Path, run: str = "") -> dict[str, Any]:
    """The place of the data directory, for comparison on machines: see `trial_runner.keeper.arrival`.

    `run`: id of the running daemon, or empty. Raises OSError.
    """
    return {"host": socket.gethostname(), "machine": _machine(), "run": run, **_place_here(data_directory)}


def shown_to_machines(data_directory: Path) -> tuple[str, Callable[[], Mapping[str, object]] | None]:
    """The id and place that the next daemon will send to machines, for a preflight; changes nothing.

    `NOBODY` and None if the next daemon will create an id, for a new directory or a copy.
    """
    if known(data_directory) == NOBODY or original_of(data_directory) is not None:
        return NOBODY, None
    return known(data_directory), partial(place, data_directory)


def claim(data_directory: Path, name: str = "") -> None:
    """Record that the directory was moved here, so that machines accept this place.

    `name`: the lost name. Raises OSError.
    """
    if name:
        _write(data_directory, name)
        _write_history(data_directory, former(data_directory), is_lost=False)
    of(data_directory)
    _write_place(data_directory, {**_place_here(data_directory), "claimed_ms": time.time_ns() // 1_000_000})


def separate(data_directory: Path, owners: Iterable[str] = ()) -> str:
    """Give the directory, a copy, a new identity for its experiments, and return it.

    `owners`: the current names of the experiments' owners. Raises OSError.
    """
    names = former(data_directory) | {known(data_directory), *owners}
    _make(data_directory)
    _write_history(data_directory, names, is_lost=False)
    _note_place(data_directory)
    return known(data_directory)


def _machine() -> str:
    """A hash that identifies this machine; empty without a machine id, as in many containers."""
    try:
        found = _MACHINE_ID.read_bytes().strip()
    except OSError:
        return ""
    return hashlib.sha256(b"nni-manager " + found).hexdigest()[:16] if found else ""


def _make(data_directory: Path) -> None:
    _write(data_directory, secrets.token_hex(4))


def _write(data_directory: Path, name: str) -> None:
    foreign_files.write_whole(str(data_directory), _FILE, name.encode(), is_durable=True)


def _history(data_directory: Path) -> dict[str, Any]:
    return _object_in(data_directory / _HISTORY)


def _write_history(data_directory: Path, names: Iterable[str], *, is_lost: bool) -> None:
    content = json.dumps({"former": sorted(names), "is_lost": is_lost}).encode()
    foreign_files.write_whole(str(data_directory), _HISTORY, content, is_durable=True)


def original_of(data_directory: Path) -> Path | None:
    """The original of this data directory, a copy that has no own name yet; None if it is not a copy or unknown."""
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
    """The stored place, or empty if it is missing or unreadable."""
    return _object_in(data_directory / _PLACE)


def _object_in(path: Path) -> dict[str, Any]:
    """The JSON object in a file, or empty if it is missing or unreadable."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def _write_place(data_directory: Path, place: Mapping[str, Any]) -> None:
    foreign_files.write_whole(str(data_directory), _PLACE, json.dumps(place).encode())
