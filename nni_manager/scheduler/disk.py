"""The room that experiments take, and the room that is left. Both are looked at in threads, never for a trial."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nni_manager.domain.errors import StoreUnavailable
from nni_manager.scheduler.patient_threads import PatientThreads
from nni_manager.store.disk_use import DiskUse, measure
from nni_manager.store.folder import Folder

_MIB = 2**20
_GIB = 2**30
#: Seconds for which the use of an experiment stays valid, and most experiments that are kept.
_FRESH_S = 60.0
_MOST_KEPT = 10_000
#: Seconds within which a disk says what room it has, and an experiment's files are counted.
_ROOM_S, _USE_S = 5.0, 10.0
#: Experiments whose files are counted at once: looking at many files keeps a disk busy.
_MOST_COUNTED = 3
_MOST_DISKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The room on the disk of one folder, in bytes."""

    folder: Path
    free: int
    total: int
    #: Below which it is little; 0: never.
    least: int

    @property
    def sentence(self) -> str:
        """What is wrong and what to do; empty: there is room."""
        if self.free >= self.least:
            return ""
        return (
            f"the disk of {self.folder} has {self.free / _GIB:.2f} GiB left, and is held to be nearly full below"
            f" {self.least / _GIB:g} GiB: make room, for instance with `nnictl experiment prune`, before experiments"
            " are put on hold"
        )


class Disk:
    """Used from one event loop."""

    def __init__(self, data_directory: Path, least_mib: int, *, room_s: float = _ROOM_S, use_s: float = _USE_S) -> None:
        self._data_directory = data_directory
        self._least = least_mib * _MIB
        self._known: dict[Path, tuple[float, DiskUse]] = {}
        self._room_s, self._use_s = room_s, use_s
        self._rooms: PatientThreads[Path, os.statvfs_result] = PatientThreads(_MOST_DISKS)
        self._counts: PatientThreads[Path, DiskUse] = PatientThreads(_MOST_COUNTED)

    async def room(self, folder: Path | None = None) -> Room:
        """The room on the disk of a folder; of the data directory if none is given. Raises OSError, after some
        seconds for one that does not answer."""
        path = folder or self._data_directory
        found = await self._rooms.ask(path, partial(os.statvfs, path), self._room_s)
        size = found.f_frsize
        return Room(folder=path, free=found.f_bavail * size, total=found.f_blocks * size, least=self._least)

    async def use_of(self, folder: Folder) -> DiskUse:
        """What an experiment takes; up to a minute old. Raises StoreUnavailable after some seconds; counting goes on
        for the next question."""
        known = self._known.get(folder.path)
        if known is not None and time.monotonic() - known[0] < _FRESH_S:
            return known[1]
        try:
            return await self._counts.ask(folder.path, partial(self._measure, folder), self._use_s)
        except TimeoutError:
            raise StoreUnavailable(
                f"the files of {folder.path} could not be counted within {self._use_s:g} s: there are many, or the disk"
                " does not answer; ask again in a minute"
            ) from None

    def _measure(self, folder: Folder) -> DiskUse:
        """The use, which is kept. It is counted in a thread."""
        use = measure(folder)
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        self._known[folder.path] = (time.monotonic(), use)
        return use
