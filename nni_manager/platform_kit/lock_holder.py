"""Who holds a lock file of ours: daemon and keeper write their process id into theirs."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock_holder(path: Path) -> int | None:
    """The process that holds a lock file; None when nobody does, or none that is known. Makes no file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int((os.read(file, 32).split() or [b"0"])[0]) or None
    finally:
        os.close(file)
    return None
