"""Disk space used by experiments, and free space. Both are measured in threads, never for a trial.

A disk may never answer: each query has its own thread, so a hanging one delays neither others nor the daemon's end.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from nni_manager.domain.errors import StoreCorrupt, StoreUnavailable
from nni_manager.store.folder import Folder
from trial_runner.wire import full_disks

_BLOCK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """Size on disk in bytes, as counted by `du`, and number of files."""

    database: int
    trials: int
    checkpoints: int
    #: Copies and archives of code.
    code: int
    logs: int
    #: Everything else in the folder.
    other: int
    files: int

    @property
    def total(self) -> int:
        return self.database + self.trials + self.checkpoints + self.code + self.logs + self.other


#: Entry of the folder → part of the usage.
_PARTS = {
    "db": "database",
    "trials": "trials",
    "environments": "trials",
    "checkpoint": "checkpoints",
    "code": "code",
    "log": "logs",
}


def measure(folder: Folder) -> DiskUse:
    """Reads the size of every file: takes a second for a hundred thousand. Unreadable files count nothing; links are
    not followed. Never raises."""
    found = dict.fromkeys([*_PARTS.values(), "other"], 0)
    seen: set[tuple[int, int]] = set()
    for name, status in _files(folder):
        if status.st_nlink > 1 and (status.st_dev, status.st_ino) in seen:
            continue  # a hard link uses no additional space
        seen.add((status.st_dev, status.st_ino))
        found[_PARTS.get(name, "other")] += status.st_blocks * _BLOCK
    return DiskUse(**found, files=len(seen))


def _files(folder: Folder) -> Iterator[tuple[str, os.stat_result]]:
    """(entry of the experiment's folder, status) of each file below it, and next to a database elsewhere."""
    for entry in _entries(folder.path):
        yield from ((entry.name, status) for status in _below(entry))
    try:
        elsewhere = folder.database.parent
    except (OSError, StoreCorrupt):
        return
    if elsewhere.parent != folder.path:
        for entry in _entries(elsewhere):
            yield from (("db", status) for status in _below(entry))


def _below(entry: os.DirEntry[str]) -> Iterator[os.stat_result]:
    waiting = [entry]
    while waiting:
        one = waiting.pop()
        try:
            if one.is_dir(follow_symlinks=False):
                waiting += _entries(one.path)
            else:
                yield one.stat(follow_symlinks=False)
        except OSError:  # removed meanwhile
            continue


def _entries(path: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return list(found)
    except OSError:
        return []


T = TypeVar("T")
Name = TypeVar("Name", bound=Hashable)


class PatientThreads(Generic[Name, T]):
    """At most one thread per name, and `most` in all. Used from one event loop."""

    def __init__(self, most: int) -> None:
        self._asked: dict[Name, asyncio.Task[T]] = {}
        self._turns = asyncio.Semaphore(most)

    async def ask(self, name: Name, function: Callable[[], T], within_s: float) -> T:
        """The function's result or exception. Raises TimeoutError; the thread continues, and the next query of the name
        waits for it."""
        task = self._asked.get(name)
        if task is None:
            task = self._asked[name] = asyncio.create_task(self._in_turn(function), name=f"disk {name}")
            task.add_done_callback(partial(self._forget, name))
        done, _ = await asyncio.wait({task}, timeout=within_s)
        if not done:
            raise TimeoutError(errno.ETIMEDOUT, f"no answer within {within_s:g} s")
        return task.result()

    def _forget(self, name: Name, task: asyncio.Task[T]) -> None:
        del self._asked[name]
        if not task.cancelled():
            task.exception()  # marks it as retrieved, as the query may have timed out

    async def _in_turn(self, function: Callable[[], T]) -> T:
        async with self._turns:
            return await _in_thread(function)


def _in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Unlike a pool's threads, this one does not delay the end of the process."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            tell = partial(_set, answer.set_result, function())
        except Exception as error:
            tell = partial(_set, answer.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell)

    def _set(put: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            put(value)

    threading.Thread(target=work, name="disk", daemon=True).start()
    return answer


_MIB = 2**20
_GIB = 2**30
#: Seconds for which the usage of an experiment stays valid, and maximum number of cached experiments.
_FRESH_S = 60.0
_MOST_KEPT = 10_000
#: Seconds for a disk to report its free space, and for counting an experiment's files.
_ROOM_S, _USE_S = 5.0, 10.0
#: Number of experiments counted concurrently: counting many files keeps a disk busy.
_MOST_COUNTED = 3
_MOST_DISKS = 64
#: Number of free inodes, enough for some dozen trials, below which a disk counts as nearly full.
_FEW_INODES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeSpace:
    """The free space on the disk of one folder, in bytes."""

    folder: Path
    free: int
    total: int
    #: Warning threshold; 0: never.
    least: int
    #: Number of free inodes; None: unlimited.
    free_inodes: int | None = None

    @property
    def sentence(self) -> str:
        """What is wrong and what to do; empty: enough space."""
        if self.free_inodes is not None and self.free_inodes < _FEW_INODES:
            few = full_disks.few_inodes(str(self.folder), self.free_inodes)
            return f"{few}, for instance with `nnictl experiment prune`"
        if self.free >= self.least:
            return ""
        return (
            f"the disk of {self.folder} has {self.free / _GIB:.2f} GiB left, less than the warning limit of"
            f" {self.least / _GIB:g} GiB: free space, for instance with `nnictl experiment prune`, before experiments"
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

    async def room(self, folder: Path | None = None) -> FreeSpace:
        """The free space on the disk of a folder; default: the data directory. Raises OSError, after some seconds for a
        disk that does not answer."""
        path = folder or self._data_directory
        found = await self._rooms.ask(path, partial(os.statvfs, path), self._room_s)
        size = found.f_frsize
        return FreeSpace(
            folder=path,
            free=found.f_bavail * size,
            total=found.f_blocks * size,
            least=self._least,
            free_inodes=full_disks.free_inodes(found),
        )

    async def use_of(self, folder: Folder) -> DiskUse:
        """An experiment's usage, up to a minute old. Raises StoreUnavailable after some seconds; counting continues
        for the next query."""
        known = self._known.get(folder.path)
        if known is not None and time.monotonic() - known[0] < _FRESH_S:
            return known[1]
        try:
            return await self._counts.ask(folder.path, partial(self._measure, folder), self._use_s)
        except TimeoutError:
            raise StoreUnavailable(
                f"the files of {folder.path} could not be counted within {self._use_s:g} s: there are many, or the disk"
                " does not answer; try again in a minute"
            ) from None

    def _measure(self, folder: Folder) -> DiskUse:
        """The usage, which is cached. It is counted in a thread."""
        use = measure(folder)
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        self._known[folder.path] = (time.monotonic(), use)
        return use
