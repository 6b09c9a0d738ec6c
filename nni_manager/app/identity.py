"""The name by which a manager's folders on other machines are known: one per data directory.

A data directory that is moved takes it along; a copy gets one of its own, or two daemons would take each other's place
on those machines, and the copy would end jobs of the original.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path

from trial_runner.wire import foreign_files

log = logging.getLogger(__name__)

#: The identity of a manager that has none yet; nothing of it is anywhere.
NOBODY = "nobody"
_FILE = "identity"
#: The place of the identity's file when a daemon saw it last: ``{"directory": absolute, "inode": number}``.
_PLACE = "identity.place"


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
            data_directory, original, known(data_directory), before, original,
        )  # fmt: skip
    _note_place(data_directory)
    return path.read_text(encoding="ascii").strip()


def known(data_directory: Path) -> str:
    """The id of a data directory, without making one."""
    with suppress(OSError, ValueError):
        return (data_directory / _FILE).read_text(encoding="ascii").strip()
    return NOBODY


def _make(data_directory: Path) -> None:
    foreign_files.write_whole(str(data_directory), _FILE, secrets.token_hex(4).encode())


def _original(data_directory: Path) -> Path | None:
    """The data directory of which this one is a copy; None: it is none, or nobody can tell."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        place = json.loads((data_directory / _PLACE).read_text(encoding="utf-8"))
        original, inode = Path(place["directory"]), place["inode"]
        is_this = os.path.samefile(original, data_directory)
        is_there = (original / _FILE).stat().st_ino == inode and known(original) == known(data_directory)
        return original if is_there and not is_this else None
    return None


def _note_place(data_directory: Path) -> None:
    place = {"directory": os.path.realpath(data_directory), "inode": (data_directory / _FILE).stat().st_ino}
    text = json.dumps(place).encode()
    if not (data_directory / _PLACE).exists() or (data_directory / _PLACE).read_bytes() != text:
        foreign_files.write_whole(str(data_directory), _PLACE, text)
