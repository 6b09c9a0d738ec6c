"""Reads closed experiments; the databases of the last few stay open while their files are unchanged.

Pages poll finished experiments, and opening a database costs more than most answers. A cached experiment is reopened
when its database was written or replaced, and closed when it is resumed, deleted or evicted. Index entries are cached
until the index is written.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import shutil
import sqlite3
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from nni_manager.domain.errors import StoreUnavailable
from nni_manager.scheduler.experiments import experiment_folder
from nni_manager.scheduler.experiments.code import IsWanted, in_thread
from nni_manager.store import migrate
from nni_manager.store.database import Database
from nni_manager.store.folder import Folder
from nni_manager.store.index import index
from nni_manager.store.index.index import Entry

T = TypeVar("T")

#: Maximum number of experiments that stay open.
_MOST_OPEN = 8
#: Seconds for which a check of the files stays valid.
_FRESH_S = 0.5

#: Identity of a database and its write-ahead log: device, inode, size and time of both; changes with every write.
_Look = tuple[tuple[int, ...], ...]


class ClosedExperiment:
    """A closed experiment that is open for reading until its files change; `ClosedExperiments` closes it.

    `copy`: folder of an upgraded copy, if the database at `path` has an older schema; else None.
    """

    def __init__(self, folder: Folder, path: Path, look: _Look, copy: Path | None) -> None:
        self.folder = folder
        self.database = Database(path if copy is None else copy / path.name, may_change=False)
        self._path = path
        self._copy = copy
        self._look = look
        #: Reads in a thread or waiting for one, including cancelled ones.
        self._reads: set[asyncio.Task[Any]] = set()
        self._looked_s = time.monotonic()

    @property
    def revision(self) -> str:
        """A text that identifies this state of the files."""
        return hashlib.sha256(repr((str(self.database.path), self._look)).encode()).hexdigest()[:16]

    @property
    def is_fresh(self) -> bool:
        """Whether its files were checked just now."""
        return time.monotonic() - self._looked_s < _FRESH_S

    @property
    def is_read(self) -> bool:
        """Whether a read is in progress."""
        return bool(self._reads)

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """The function's result. Raises _Changed if the files are not the opened ones."""
        return await self.read_anyway(lambda connection: self._read(connection, function))

    async def read_anyway(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """The function's result, even if the files are not the opened ones."""
        reading = asyncio.create_task(self.database.read(function), name=f"read {self.database.path}")
        self._reads.add(reading)
        reading.add_done_callback(self._reads.discard)
        return await asyncio.shield(reading)

    def _read(self, connection: sqlite3.Connection, function: Callable[[sqlite3.Connection], T]) -> T:
        looked_s = time.monotonic()
        if _look(self._path) != self._look:
            raise _Changed
        self._looked_s = looked_s
        return function(connection)

    async def close(self) -> None:
        """Closes it; a copy is removed when no read uses it."""
        if self._copy is not None and self._reads:
            await asyncio.wait(self._reads)
        await self.database.close()
        if self._copy is not None:
            await asyncio.to_thread(shutil.rmtree, self._copy, ignore_errors=True)


class ClosedExperiments:
    """The closed experiments that a daemon reads; used from one event loop."""

    def __init__(self, index_database: Database) -> None:
        self._index = index_database
        self._entries: dict[str, Entry] = {}
        #: Number of commits to the index when `_entries` were read.
        self._commits = 0
        #: The most recently read one is last.
        self._open: OrderedDict[str, ClosedExperiment] = OrderedDict()
        #: Experiments that are being closed: cancelled requests leave that to `close`.
        self._closing: set[asyncio.Task[None]] = set()

    async def entry(self, id: str) -> Entry:
        """The index entry of an experiment, open or closed. Raises NotFound."""
        found = self.known_entry(id)
        if found is None:
            commits = self._index.commits
            found = await self._index.read(lambda c: index.get(c, id))
            if commits == self._index.commits:  # otherwise the entry may be outdated
                self.known_entry(id)
                self._entries[id] = found
        return found

    def known_entry(self, id: str) -> Entry | None:
        """The cached entry of an experiment; None: not cached."""
        if self._commits != self._index.commits:
            self._entries.clear()
            self._commits = self._index.commits
        return self._entries.get(id)

    def kept(self, id: str) -> ClosedExperiment | None:
        """The open experiment if it was checked recently; None: it must be opened or checked."""
        found, entry = self._open.get(id), self.known_entry(id)
        if found is None or entry is None or found.folder != entry.folder or not found.is_fresh:
            return None
        self._open.move_to_end(id)
        return found

    async def read(self, id: str, choose: Callable[[ClosedExperiment], Callable[[sqlite3.Connection], T]]) -> T:
        """Runs the function that `choose` returns for the opened experiment.

        Raises NotFound or StoreError.
        """
        entry = await self.entry(id)
        try:
            experiment = await self._opened(entry)
            return await experiment.read(choose(experiment))
        except _Changed:
            await self.release(id)
        finally:
            await self._evict()
        fresh = await _open(entry)  # the writer may continue: read the present state once
        try:
            return await fresh.read_anyway(choose(fresh))
        finally:
            await self._close(fresh)

    async def release(self, id: str) -> None:
        """Closes an experiment that is resumed, deleted or was changed."""
        if (found := self._open.pop(id, None)) is not None:
            await self._close(found)

    async def close(self) -> None:
        for id in tuple(self._open):
            await self.release(id)
        if self._closing:
            await asyncio.wait(self._closing)

    async def _opened(self, entry: Entry) -> ClosedExperiment:
        while (found := self._open.get(entry.id)) is None or found.folder != entry.folder:
            await self.release(entry.id)
            fresh = await _open(entry)
            if entry.id in self._open:  # another task was faster, and its result is used
                await self._close(fresh)
            else:
                self._open[entry.id] = fresh
        self._open.move_to_end(entry.id)
        return found

    async def _evict(self) -> None:
        """Closes surplus experiments. One with active reads stays until they end."""
        while len(self._open) > _MOST_OPEN and (idle := [id for id, one in self._open.items() if not one.is_read]):
            await self.release(idle[0])

    async def _close(self, experiment: ClosedExperiment) -> None:
        closing = asyncio.create_task(experiment.close(), name=f"close {experiment.database.path}")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        await asyncio.shield(closing)


class _Changed(Exception):
    """The database was written or replaced."""


async def _open(entry: Entry) -> ClosedExperiment:
    """Opens an experiment for reading. Raises NotFound or StoreError."""
    return ClosedExperiment(entry.folder, *await in_thread(partial(_find, entry.folder)))


def _find(folder: Folder, is_wanted: IsWanted) -> tuple[Path, _Look, Path | None]:
    """The database, converted if NNI created it, its identity, and an upgraded copy of an older one, which is removed
    after use. Blocks."""
    path = folder.require_database()
    experiment_folder.adopt(folder)
    copy = Path(tempfile.gettempdir()) / f"nni-manager-{secrets.token_hex(8)}"
    try:
        look = _look(path)
        return path, look, copy if migrate.upgraded_copy(path, "experiment", copy) else None
    except _Changed:
        raise StoreUnavailable(f"the database {path} was just removed; try again") from None
    finally:
        if not is_wanted():
            shutil.rmtree(copy, ignore_errors=True)


def _look(path: Path) -> _Look:
    """The identity of the files; an empty write-ahead log counts as none. Raises _Changed without a database."""
    try:
        return _stamp(os.stat(path)), _stamp_of_log(f"{path}-wal")
    except OSError:
        raise _Changed from None


def _stamp_of_log(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return ()
    return _stamp(found) if found.st_size else ()


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
