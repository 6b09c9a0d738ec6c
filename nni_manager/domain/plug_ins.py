"""The entry points of installed packages by group: platforms, tuners and assessors that others add.

To find them, the metadata of every installed package is read, which takes 50 ms, and a config asks several times: what
was found stays while none of the folders that packages are installed in has changed, and for a minute at most, as a
package may be half written when it is found.
"""

from __future__ import annotations

import os
import sys
import time
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Path and time of change of each folder that is searched, ns; 0: it cannot be asked.
_Searched = tuple[tuple[str, int], ...]
_STAYS_S = 60


def plug_ins(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, those of packages that were installed since this process began, too."""
    return _found(group, tuple((path, _changed_ns(path)) for path in sys.path), time.monotonic() // _STAYS_S)


def _changed_ns(path: str) -> int:
    try:
        return os.stat(path or ".").st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=8)
def _found(group: str, _searched: _Searched, _minute: float) -> tuple[EntryPoint, ...]:
    from importlib import metadata  # 10 ms, needed only where plug-ins may matter

    return tuple(metadata.entry_points(group=group))
