"""Storage that lags: a mounted folder as network file systems show it to this process, regardless of its content.

The reports of a trial runner, `runner.json` and `exit.json`, are visible at once; the files that they refer to are not.
The lag affects all reads through the `os` module in this process; other processes see the real folder.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest.mock import patch

from trial_runner import protocol

#: Parts of delayed paths: all files of a runner except its reports.
_LATE = frozenset({protocol.OUTBOX_FOLDER, protocol.METRICS_FILE.partition("/")[0], *protocol.LOG_FILES})


class Lag(StrEnum):
    #: Folders and files are not visible yet.
    LATE_DIRECTORIES = "late directories"
    #: Files seem to have half of their bytes.
    LATE_SIZES = "late sizes"
    #: Files seem to be empty, even those that were read before.
    TRUNCATED = "truncated"
    #: Opening and listing fail with ESTALE.
    STALE_HANDLES = "stale handles"


class LaggingStorage:
    """Storage that lags until `settle` is called: afterwards everything is visible."""

    def __init__(self, root: Path, lag: Lag) -> None:
        self._root = os.path.realpath(root)
        self._lag = lag
        self._is_settled = False

    def settle(self) -> None:
        self._is_settled = True

    def is_late(self, path: Any, folder: int | None = None) -> bool:
        """Whether a path is delayed. `path`: as passed to `os`, relative to the open `folder`, if any."""
        if self._is_settled:
            return False
        if isinstance(path, int):
            place = _path_of(path)
        else:
            base = os.getcwd() if folder is None else _path_of(folder)
            place = os.path.normpath(os.path.join(base, os.fsdecode(path)))
        return place.startswith(self._root + "/") and not _LATE.isdisjoint(place[len(self._root) :].split("/"))

    def refuse(self, path: Any, folder: int | None = None) -> None:
        """Raises OSError for a path that is not visible now."""
        number = {Lag.LATE_DIRECTORIES: errno.ENOENT, Lag.STALE_HANDLES: errno.ESTALE}.get(self._lag)
        if number is not None and self.is_late(path, folder):
            raise OSError(number, os.strerror(number), path)

    def shown_size(self, size: int) -> int:
        return 0 if self._lag is Lag.TRUNCATED else size // 2


@contextmanager
def lagging_storage(root: Path, lag: Lag) -> Iterator[LaggingStorage]:
    """A context in which everything below `root` lags, until the storage settles."""
    storage = LaggingStorage(root, lag)
    names = ("open", "scandir", "listdir", "stat", "lstat", "fstat", "pread")
    real = {name: getattr(os, name) for name in names}
    with patch.multiple(os, **_shown(storage, real)):
        yield storage


def _shown(storage: LaggingStorage, real: dict[str, Callable[..., Any]]) -> dict[str, Any]:
    def look_up(name: str) -> Callable[..., Any]:
        def looked_up(path: Any = ".", *arguments: Any, dir_fd: int | None = None, **options: Any) -> Any:
            storage.refuse(path, dir_fd)
            more = {} if dir_fd is None else {"dir_fd": dir_fd}
            return real[name](path, *arguments, **more, **options)

        return looked_up

    def measure(name: str) -> Callable[..., Any]:
        def measured(path: Any, *, dir_fd: int | None = None, **options: Any) -> os.stat_result:
            storage.refuse(path, dir_fd)
            more = {} if dir_fd is None else {"dir_fd": dir_fd}
            found: os.stat_result = real[name](path, **more, **options)
            if not storage.is_late(path, dir_fd):
                return found
            return os.stat_result((*found[:6], storage.shown_size(found.st_size), *found[7:]))

        return measured

    def read(descriptor: int, length: int, offset: int) -> bytes:
        storage.refuse(descriptor)
        if storage.is_late(descriptor):
            length = max(0, min(length, storage.shown_size(real["fstat"](descriptor).st_size) - offset))
        return bytes(real["pread"](descriptor, length, offset))

    return {
        **{name: look_up(name) for name in ("open", "scandir", "listdir")},
        **{name: measure(name) for name in ("stat", "lstat", "fstat")},
        "pread": read,
    }


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")
