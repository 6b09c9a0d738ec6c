"""Mounted outputs of jobs: a folder that uploads each file when it is closed.

A file that is open for writing is not uploaded: storage has its content at the last close, if any. Files that others
write to storage appear in the folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.fakes.aml.blobs import replace, walked

_Mark = tuple[int, int, int]


class OutputMount:
    """`inside`: the folder in the container; `blobs`: the folder in storage."""

    def __init__(self, inside: Path, blobs: Path) -> None:
        self.inside, self.blobs = inside, blobs
        inside.mkdir(parents=True, exist_ok=True)
        blobs.mkdir(parents=True, exist_ok=True)
        #: Name → state of a file, here and in storage, at the last synchronization.
        self._same: dict[str, tuple[_Mark, _Mark]] = {}

    def sync(self) -> None:
        """Upload closed files, and download files that others wrote."""
        here, there = dict(_files(self.inside)), dict(_files(self.blobs))
        for name in sorted({*here, *there}):
            self._sync(name, here.get(name), there.get(name))
        self._share_pipes()

    def _sync(self, name: str, here: _Mark | None, there: _Mark | None) -> None:
        known = self._same.get(name)
        if known == (here, there):
            return
        if here is not None and (known is None or known[0] != here):
            self._upload(name)
        elif here is None and known is not None:
            (self.blobs / name).unlink(missing_ok=True)
            del self._same[name]
        elif there is None:
            (self.inside / name).unlink(missing_ok=True)
            self._same.pop(name, None)
        else:
            self._move(self.blobs / name, self.inside / name, name)

    def _upload(self, name: str) -> None:
        with suppress(FileNotFoundError):
            if not is_written(self.inside / name):
                self._move(self.inside / name, self.blobs / name, name)

    def _move(self, source: Path, target: Path, name: str) -> None:
        with suppress(FileNotFoundError):
            replace(target, source.read_bytes())
            self._same[name] = (_mark(self.inside / name), _mark(self.blobs / name))

    def _share_pipes(self) -> None:
        """Show pipes that a test created in storage to control its job; real storage has none."""
        for pipe in walked(self.blobs):
            place = self.inside / pipe.relative_to(self.blobs)
            if pipe.is_fifo() and not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                os.link(pipe, place)

    def remove(self) -> None:
        shutil.rmtree(self.inside, ignore_errors=True)


def is_written(path: Path) -> bool:
    """Whether a process has it open for writing: only without one does the kernel grant a read lease."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # announces a lease break by a signal that is ignored
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _files(folder: Path) -> Iterator[tuple[str, _Mark]]:
    for path in walked(folder):
        with suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink() and not (path.name[0] == "." and path.suffix == ".new"):
                yield str(path.relative_to(folder)), _mark(path)


def _mark(path: Path) -> _Mark:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
