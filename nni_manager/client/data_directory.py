"""The data directory and its lock files, private to their owner: a file that others can open, they can lock for
ever."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


def make_data_directory(path: Path) -> None:
    """Makes the data directory if it is missing, and makes it private (NNI's are not).

    A folder that holds other files too, or is another user's, keeps its mode. Raises OSError.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.stat()
    is_shared = status.st_mode & stat.S_ISVTX or path in (Path.home(), Path("/"))
    if status.st_uid == os.geteuid() and status.st_mode & 0o077 and not is_shared:
        with suppress(OSError):  # the file system has no modes
            path.chmod(stat.S_IMODE(status.st_mode) & 0o700)


def open_lock(path: Path) -> BinaryIO:
    """A lock file, made if missing, that no other user can open or hold. Raises OSError."""
    lock = open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))
    with suppress(OSError):
        os.fchmod(lock.fileno(), 0o600)  # an earlier version may have made it
    return lock
