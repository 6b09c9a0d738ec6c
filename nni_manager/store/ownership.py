"""Ownership of a data directory and of experiment folders: one daemon each, by file locks that die with their
holder."""

from __future__ import annotations

import os
from pathlib import Path

from nni_manager.domain.errors import AlreadyOwned
from trial_runner.wire.descriptors import try_lock


class Ownership:
    """Holds the lock file `path` until `release`. Raises AlreadyOwned, naming the holder's process, and OSError."""

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if not try_lock(self._file):
            holder = os.read(self._file, 32).decode(errors="replace").strip()
            os.close(self._file)
            raise AlreadyOwned(f"{what} is in use by process {holder or 'unknown'}")
        os.truncate(self._file, 0)
        os.write(self._file, f"{os.getpid()}\n".encode())

    @property
    def is_in_place(self) -> bool:
        """Whether the lock file is still at its path; its folder may have been moved, deleted or replaced."""
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self.path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # the disk does not answer now
            return True

    def release(self) -> None:
        """Releases the lock. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
