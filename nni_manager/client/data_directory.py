"""The data directory and its lock files. They are their owner's alone: what others can open, they can lock for ever."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


def make_data_directory(path: Path) -> None:
    """Makes the data directory when it is missing, and closes it to others, who may enter one that NNI made.

    A folder that is there for more than our files, or another user's, stays as it is. Raises OSError.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.stat()
    is_shared = status.st_mode & stat.S_ISVTX or path in (Path.home(), Path("/"))
    if status.st_uid == os.geteuid() and status.st_mode & 0o077 and not is_shared:
        with suppress(OSError):  # a file system without modes
            path.chmod(stat.S_IMODE(status.st_mode) & 0o700)


def open_lock(path: Path) -> BinaryIO:
    """A lock file, made when missing, that no other user can open and so nobody else can hold. Raises OSError."""
    lock = open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))
    with suppress(OSError):
        os.fchmod(lock.fileno(), 0o600)  # it may be of an earlier version
    return lock
