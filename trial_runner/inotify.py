"""Changes in folders: from the kernel if possible, otherwise by polling."""

import os
import struct
from contextlib import suppress
from typing import Callable, Iterator, List, NamedTuple, Optional

from trial_runner import launch
from trial_runner.loop import Loop

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
    """A change; consecutive equal ones are merged."""

    #: Number of the watch, -1 with `OVERFLOW`.
    watch: int
    mask: int
    name: bytes


class Inotify:
    """A queue of changes. Raises OSError if the kernel provides none."""

    def __init__(self) -> None:
        self.descriptor = launch.libc_call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)

    def add(self, folder: str, mask: int) -> int:
        """Number of the watch; the same folder has the same number. Raises OSError."""
        return launch.libc_call("inotify_add_watch", self.descriptor, os.fsencode(folder), mask | _ONLYDIR)

    def remove(self, watch: int) -> None:
        """Ends a watch; ignores one that ended with its folder."""
        with suppress(OSError):
            launch.libc_call("inotify_rm_watch", self.descriptor, watch)

    def events(self) -> Iterator[Event]:
        """The events so far; more may be waiting if there are many."""
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


#: Seconds between the first sign of a change and its report.
_GATHER_S = 0.05
#: Seconds between two polls if the kernel sends no events.
_LOOK_S = 0.25

_CHANGES = MODIFY | CREATE | MOVED_TO


class Changes:
    """`folders`: called again whenever a folder may have been created. Missing folders are watched once they exist."""

    def __init__(self, loop: Loop, folders: Callable[[], List[str]], on_changed: Callable[[], None]) -> None:
        self._loop = loop
        self._folders = folders
        self._on_changed = on_changed
        self._is_by_clock = False
        self._inotify = _open()
        self._watch_folders()
        if self._inotify is not None:
            loop.watch(self._inotify.descriptor, lambda _: self._gather())

    def _gather(self) -> None:
        assert self._inotify is not None
        self._loop.unwatch(self._inotify.descriptor)
        self._loop.call_later(_GATHER_S, self._tell)

    def _tell(self) -> None:
        assert self._inotify is not None
        if any([event.mask & (ISDIR | OVERFLOW) for event in self._inotify.events()]):
            self._watch_folders()
        self._loop.watch(self._inotify.descriptor, lambda _: self._gather())
        self._on_changed()

    def _watch_folders(self) -> None:
        try:
            if self._inotify is None:
                raise OSError("inotify is missing")
            for folder in self._folders():
                if os.path.isdir(folder):
                    self._inotify.add(folder, _CHANGES)
        except OSError:  # limits reached, or no inotify
            self._look_later()

    def _look_later(self) -> None:
        if not self._is_by_clock:
            self._is_by_clock = True
            self._loop.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._loop.call_later(_LOOK_S, self._look)
        self._on_changed()


def _open() -> Optional[Inotify]:
    try:
        return Inotify()
    except OSError:
        return None
