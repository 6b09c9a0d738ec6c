"""Copies of unpacked code, one for each job.

Blocks are shared where the file system does that (a clone, of which each side's changes are its own), else everything
is copied. There are no hard links: two names of one file would show a trial what another one writes into its code.
"""

import fcntl
import os
import stat
from typing import Callable

#: ``_IOW(0x94, 9, int)`` of Linux: the file shares all blocks of the other one until either is written.
_FICLONE = 0x40049409
_COPY_BYTES = 8 * 1024 * 1024

Tell = Callable[[int], None]


class Copies:
    """Copies a folder. `tell`: called with the bytes that are copied so far."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._bytes = 0
        self._may_clone = True

    def copy(self, source: str, target: str) -> None:
        """Copies what is in a folder, replacing files of the same name. Raises OSError."""
        os.makedirs(target, exist_ok=True)
        with os.scandir(source) as entries:
            for entry in list(entries):
                self._copy_entry(entry, os.path.join(target, entry.name))

    def _copy_entry(self, entry: "os.DirEntry[str]", target: str) -> None:
        if entry.is_dir(follow_symlinks=False):
            self.copy(entry.path, target)
            return
        if os.path.lexists(target):
            os.unlink(target)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        else:
            self._copy_file(entry.path, target)

    def _copy_file(self, source: str, target: str) -> None:
        reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            state = os.fstat(reader)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            writer = os.open(target, flags, stat.S_IMODE(state.st_mode))
            try:
                if not self._clone(reader, writer):
                    self._copy_bytes(reader, writer, state.st_size)
            finally:
                os.close(writer)
        finally:
            os.close(reader)
        self._bytes += state.st_size
        self._tell(self._bytes)

    def _clone(self, reader: int, writer: int) -> bool:
        if not self._may_clone:
            return False
        try:
            fcntl.ioctl(writer, _FICLONE, reader)
        except OSError:
            self._may_clone = False
        return self._may_clone

    def _copy_bytes(self, reader: int, writer: int, size: int) -> None:
        done = 0
        while done < size:
            sent = os.sendfile(writer, reader, done, min(_COPY_BYTES, size - done))
            if not sent:
                return
            done += sent
            self._tell(self._bytes + done)
