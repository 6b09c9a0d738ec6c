"""The holders of our lock files: daemon and keeper write their process id into theirs; the kernel knows others."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trial_runner.wire.descriptors import try_lock

#: The kernel's list of all file locks.
_LOCKS = Path("/proc/locks")


def lock_holder(path: Path) -> int | None:
    """The process that holds a lock file; None: it is free, or the holder is unknown. Does not create the file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if try_lock(file, fcntl.LOCK_SH):
            return None
        return int((os.read(file, 32).split() or [b"0"])[0]) or None
    finally:
        os.close(file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    pid: int
    #: Id of its user.
    user: int
    name: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name}, user {self.user})"


def holders(path: Path) -> list[Holder]:
    """Processes with a lock on any part of a file, as far as the kernel shows them; empty for a missing file."""
    try:
        found = path.stat()
        lines = _LOCKS.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    taken = [
        words for words in map(str.split, lines) if "->" not in words and place in words
    ]  # "->" marks a waiting process
    return [holder for pid in dict.fromkeys(int(words[4]) for words in taken) if (holder := _holder(pid)) is not None]


def _holder(pid: int) -> Holder | None:
    with suppress(OSError):
        process = Path(f"/proc/{pid}")
        name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
        return Holder(pid=pid, user=process.stat().st_uid, name=name)
    return None
