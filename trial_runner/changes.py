"""Tells that files of the attempt may have grown: by the kernel where it can, else by the clock."""

import os
from typing import Callable, Iterable, List, Optional

from trial_runner import inotify
from trial_runner.inotify import Event, Inotify
from trial_runner.loop import Loop

#: Seconds between the first sign of a change and telling it.
_GATHER_S = 0.05
#: Seconds between two looks where the kernel does not tell.
_LOOK_S = 0.25

_CHANGES = inotify.MODIFY | inotify.CREATE | inotify.MOVED_TO


class Changes:
    """`folders` is asked anew whenever one may have come. Folders that are missing are not watched, yet."""

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
        if _may_bring_folders(self._inotify.events()):
            self._watch_folders()
        self._loop.watch(self._inotify.descriptor, lambda _: self._gather())
        self._on_changed()

    def _watch_folders(self) -> None:
        try:
            if self._inotify is None:
                raise OSError("there is no inotify")
            for folder in self._folders():
                if os.path.isdir(folder):
                    self._inotify.add(folder, _CHANGES)
        except OSError:  # its limits are reached, or it is not there
            self._look_later()

    def _look_later(self) -> None:
        if not self._is_by_clock:
            self._is_by_clock = True
            self._loop.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._loop.call_later(_LOOK_S, self._look)
        self._on_changed()


def _may_bring_folders(events: Iterable[Event]) -> bool:
    return any([event.mask & (inotify.ISDIR | inotify.OVERFLOW) for event in events])


def _open() -> Optional[Inotify]:
    try:
        return Inotify()
    except OSError:
        return None
