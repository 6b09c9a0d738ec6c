"""Room on the data directory's disk, kept for a daemon that must start when there is none left.

SQLite cannot open an index without some room beside it, and gives that back whenever a daemon ends.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

NAME = "reserve"
#: Bytes: what SQLite keeps in memory files and its log of an index that changes little, and the daemon's small files.
_SIZE = 512 * 1024


def keep(data_directory: Path) -> None:
    """Makes it unless it is there, or there is no room for it."""
    path = data_directory / NAME
    with suppress(OSError):  # it is there already, for instance
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, _SIZE)
        except OSError:
            path.unlink()
        finally:
            os.close(file)


def spend(data_directory: Path) -> bool:
    """Gives the room back; whether there was some."""
    try:
        (data_directory / NAME).unlink()
    except OSError:
        return False
    return True
