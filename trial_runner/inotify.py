"""Changes in folders, from the kernel."""

import os
import struct
from contextlib import suppress
from typing import Iterator, NamedTuple

from trial_runner import launch

MODIFY = 0x2
MOVED_TO = 0x80
CREATE = 0x100
OVERFLOW = 0x4000
ISDIR = 0x40000000
_IGNORED = 0x8000
_ONLYDIR = 0x01000000

_HEADER = struct.Struct("iIII")
_READ_BYTES = 32 * 1024


class Event(NamedTuple):
    """One change; several equal ones in a row are told once."""

    #: Number of the watch, -1 with `OVERFLOW`.
    watch: int
    mask: int
    name: bytes


class Inotify:
    """A queue of changes. Raises OSError where there is none to be had."""

    def __init__(self) -> None:
        self.descriptor = launch.libc_call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)

    def add(self, folder: str, mask: int) -> int:
        """Number of the watch, the same one for the same folder. Raises OSError."""
        return launch.libc_call("inotify_add_watch", self.descriptor, os.fsencode(folder), mask | _ONLYDIR)

    def remove(self, watch: int) -> None:
        """Quiet when the folder, and the watch with it, is gone."""
        with suppress(OSError):
            launch.libc_call("inotify_rm_watch", self.descriptor, watch)

    def events(self) -> Iterator[Event]:
        """The events so far; more may be waiting when there are many."""
        try:
            data = os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        position = 0
        while position < len(data):
            watch, mask, _, length = _HEADER.unpack_from(data, position)
            position += _HEADER.size + length
            if not mask & _IGNORED:
                yield Event(watch, mask, data[position - length : position].rstrip(b"\0"))
