"""Copies what the command prints to the runner's own output, where the platform collects it.

A thread of its own, because whoever reads that output may be slow: results must not wait for it.
"""

import os
import threading
from typing import List, NamedTuple

from trial_runner.wire import foreign_files

_COPY_BYTES = 64 * 1024


class Copy(NamedTuple):
    """From a file to a descriptor."""

    path: str
    descriptor: int


class Echo(threading.Thread):
    """Begins at the files' present ends."""

    def __init__(self, copies: List[Copy]) -> None:
        super().__init__(name="echo", daemon=True)
        self._copies = [copy for copy in copies if not _is_same_file(copy)]
        self._offsets = {copy: _size(copy.path) for copy in self._copies}
        self._news = threading.Event()
        self._is_last = False

    def notice(self) -> None:
        """The files may have grown."""
        self._news.set()

    def finish(self, patience_s: float) -> None:
        """Copies the rest and ends; gives up after so many seconds."""
        self._is_last = True
        self._news.set()
        self.join(patience_s)

    def run(self) -> None:
        is_last = False
        while not is_last:
            self._news.wait()
            self._news.clear()
            is_last = self._is_last
            for copy in list(self._offsets):
                self._copy(copy)

    def _copy(self, copy: Copy) -> None:
        try:
            data = _read(copy, self._offsets[copy])
            while data:
                self._offsets[copy] += os.write(copy.descriptor, data)
                data = _read(copy, self._offsets[copy])
        except OSError:
            del self._offsets[copy]  # nobody reads our output any more, or the file is gone


def _read(copy: Copy, offset: int) -> bytes:
    return foreign_files.read(*os.path.split(copy.path), offset=offset, limit=_COPY_BYTES)


def _is_same_file(copy: Copy) -> bool:
    """The runner's output was sent into that very file: copying would never end."""
    try:
        return os.path.samestat(os.stat(copy.path), os.fstat(copy.descriptor))
    except OSError:
        return False


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
