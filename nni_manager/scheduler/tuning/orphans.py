"""Processes that a tuner has left.

A tuner's children are orphaned when its process dies, immediately if the daemon is killed. They inherit an environment
variable that marks them: the experiment's log folder and an id. A child that clears its environment is not found.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

MARK_VARIABLE = "NNI_MANAGER_TUNER"
#: Maximum number of scans: processes may fork during one.
_MOST_LOOKS = 5


def new_mark(log_folder: Path) -> str:
    """A new mark, for one process and its descendants."""
    return f"{mark_prefix(log_folder)}{uuid4().hex}"


def mark_prefix(log_folder: Path) -> str:
    """The common prefix of an experiment's marks."""
    return f"{log_folder}:"


def end_orphans(mark: str) -> int:
    """Kills all processes whose mark has this prefix; returns their number. Takes milliseconds, depending on the number
    of processes on the machine."""
    entry, killed = f"{MARK_VARIABLE}={mark}".encode(), set[int]()
    for _ in range(_MOST_LOOKS):
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        found = {pid for pid in pids if pid not in (os.getpid(), *killed) and _has(pid, entry)}
        if not found:
            break
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
    return len(killed)


def _has(pid: int, entry: bytes) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return environment.startswith(entry) or b"\0" + entry in environment
