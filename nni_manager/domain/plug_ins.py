"""Plug-ins: entry points of other packages.

Reading those of all installed packages takes 20 ms or more. So they are cached until a folder of the path changes, for
example by an installation or removal.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Path, and of what lies there device, inode and time of the last change in nanoseconds; empty: there is nothing.
_State = tuple[tuple[str, tuple[int, ...]], ...]

#: A package may be installed in part: entries read within this number of seconds after a change are not cached.
_SETTLED_S = 10.0
#: Group → what it was read from, and what was found.
_read: dict[str, tuple[_State, tuple[EntryPoint, ...]]] = {}


def entry_points(group: str) -> Sequence[EntryPoint]:
    """The entry points of a group, of packages that are installed now."""
    state = tuple((path, _seen(path or os.curdir)) for path in sys.path)
    known = _read.get(group)
    if known is not None and known[0] == state:
        return known[1]
    from importlib import metadata  # 10 ms, needed only where plug-ins may matter

    found = tuple(metadata.entry_points(group=group))
    if _is_settled(state):
        _read[group] = state, found
    return found


def _seen(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _is_settled(state: _State) -> bool:
    now_ns = time.time_ns()
    return all(abs(now_ns - seen[-1]) > _SETTLED_S * 1e9 for _, seen in state if seen)
