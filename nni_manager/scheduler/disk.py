"""The room that experiments take, and the room that is left. Both are looked at in threads, never for a trial."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

from nni_manager.store.disk_use import DiskUse, measure
from nni_manager.store.folder import Folder

_MIB = 2**20
_GIB = 2**30
#: Seconds for which the use of an experiment stays valid, and most experiments that are kept.
_FRESH_S = 60.0
_MOST_KEPT = 10_000


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

    def __init__(self, data_directory: Path, least_mib: int) -> None:
        self._data_directory = data_directory
        self._least = least_mib * _MIB
        self._known: dict[Path, tuple[float, DiskUse]] = {}
        #: One experiment at a time: looking at all files of many keeps a disk busy.
        self._turn = asyncio.Lock()

    async def room(self, folder: Path | None = None) -> Room:
        """The room on the disk of a folder; of the data directory if none is given. Raises OSError."""
        path = folder or self._data_directory
        found = await asyncio.to_thread(os.statvfs, path)
        size = found.f_frsize
        return Room(folder=path, free=found.f_bavail * size, total=found.f_blocks * size, least=self._least)

    async def use_of(self, folder: Folder) -> DiskUse:
        """What an experiment takes; up to a minute old."""
        async with self._turn:
            known = self._known.get(folder.path)
            if known is not None and time.monotonic() - known[0] < _FRESH_S:
                return known[1]
            use = await asyncio.to_thread(measure, folder)
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[folder.path] = (time.monotonic(), use)
            return use
