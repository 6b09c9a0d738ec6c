"""The interpreter and its SQLite."""

from __future__ import annotations

import platform
import sqlite3
import sys
from collections.abc import Iterator

from nni_manager import __version__
from nni_manager.app.doctor.finding import CheckFinding, failure, ok

_OLDEST = (3, 11)
#: The first with RETURNING and JSON functions that are always there.
_OLDEST_SQLITE = (3, 38)


def look() -> Iterator[CheckFinding]:
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
