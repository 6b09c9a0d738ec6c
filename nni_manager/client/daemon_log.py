"""The log file of a background daemon. A large file is rotated, and one earlier file is kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

#: In the data directory.
LOG_FILE = "daemon.log"
#: Size from which another is begun.
_LARGE_BYTES = 8 * 2**20
#: Standard output and standard error.
_OUTPUT = (1, 2)


def put_aside(log: Path) -> bool:
    """Move a large log; processes that have it open keep writing to it. False if it is small or cannot be moved."""
    with suppress(OSError):
        if log.stat().st_size > _LARGE_BYTES:
            log.replace(log.with_name(f"{log.name}.1"))
            return True
    return False


def renew(log: Path, descriptors: Sequence[int] = _OUTPUT) -> None:
    """Move a large log and redirect the descriptors that write to it to a new one.

    Other descriptors, such as those of a terminal or of a service manager's file, are kept.
    """
    with suppress(OSError):
        before = log.stat()
        own = [each for each in descriptors if os.path.samestat(os.fstat(each), before)]
        if own and put_aside(log):
            with open(log, "ab") as new:
                for each in own:
                    os.dup2(new.fileno(), each)
