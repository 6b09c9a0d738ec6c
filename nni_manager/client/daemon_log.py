"""The file for the output of a daemon in the background: begun anew where it is large, and one earlier is kept."""

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
    """Moves a large log; processes that have it open write on into it. False: it is not large, or cannot be moved."""
    with suppress(OSError):
        if log.stat().st_size > _LARGE_BYTES:
            log.replace(log.with_name(f"{log.name}.1"))
            return True
    return False


def renew(log: Path, descriptors: Sequence[int] = _OUTPUT) -> None:
    """Puts a large log aside and lets the descriptors that write to it go on in a new one.

    Descriptors of something else, as of a terminal or of a service manager's file, stay as they are.
    """
    with suppress(OSError):
        before = log.stat()
        own = [each for each in descriptors if os.path.samestat(os.fstat(each), before)]
        if own and put_aside(log):
            with open(log, "ab") as new:
                for each in own:
                    os.dup2(new.fileno(), each)
