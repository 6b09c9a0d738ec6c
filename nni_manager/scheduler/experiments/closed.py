"""Experiments that nobody works on, as they are read: the last few stay open, as long as their files stay the same.

People look at finished experiments most, and pages ask again and again: opening a database costs more than most
answers. A kept experiment is opened anew when its database was written or exchanged by anybody, and let go when it is
resumed, deleted, or others were looked at since. What the index says of it is kept until the index is written.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import sqlite3
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from nni_manager.domain.errors import StoreUnavailable
from nni_manager.scheduler.experiments import experiment_folder
from nni_manager.store import migrate
from nni_manager.store.database import Database
from nni_manager.store.folder import Folder
from nni_manager.store.index import index
from nni_manager.store.index.index import Entry

T = TypeVar("T")

#: Experiments that stay open.
_MOST_OPEN = 8
#: Seconds for which files that were just looked at are believed to be the same.
_FRESH_S = 0.5

#: Of a database and its write-ahead log, what changes with every write: device, inode, size and time of both.
_Look = tuple[tuple[int, ...], ...]


class ClosedExperiment:
    """A closed experiment that is open for reading until its files change; `ClosedExperiments` closes it.

    `copy`: a folder with its database as this version has it, where the one at `path` is of an earlier one.
    """

    def __init__(self, folder: Folder, path: Path, look: _Look, copy: Path | None) -> None:
        self.folder = folder
        self.database = Database(path if copy is None else copy / path.name)
        self._path = path
        self._copy = copy
        self._look = look
        self._looked_s = time.monotonic()

    @property
    def is_fresh(self) -> bool:
        """Whether its files were the same a moment ago."""
        return time.monotonic() - self._looked_s < _FRESH_S

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """The function's answer. Raises _Changed when what is open is not what lies there now."""
        return await self.database.read(lambda connection: self._read(connection, function))

    def _read(self, connection: sqlite3.Connection, function: Callable[[sqlite3.Connection], T]) -> T:
        looked_s = time.monotonic()
        if _look(self._path) != self._look:
            raise _Changed
        self._looked_s = looked_s
        return function(connection)

    async def close(self) -> None:
        await self.database.close()
        if self._copy is not None:
            await asyncio.to_thread(shutil.rmtree, self._copy, ignore_errors=True)


class ClosedExperiments:
    """The closed experiments that a daemon reads; used from one event loop."""

    def __init__(self, index_database: Database) -> None:
        self._index = index_database
        self._entries: dict[str, Entry] = {}
        #: Of commits to the index, when `_entries` were read.
        self._commits = 0
        #: The one that was read last comes last.
        self._open: OrderedDict[str, ClosedExperiment] = OrderedDict()

    async def entry(self, id: str) -> Entry:
        """The index entry of an experiment, open or closed. Raises NotFound."""
        found = self.known_entry(id)
        if found is None:
            commits = self._index.commits
            found = await self._index.read(lambda c: index.get(c, id))
            if commits == self._index.commits:  # else it may be what was there before
                self.known_entry(id)
                self._entries[id] = found
        return found

    def known_entry(self, id: str) -> Entry | None:
        """The entry of an experiment from memory; None where that takes reading."""
        if self._commits != self._index.commits:
            self._entries.clear()
            self._commits = self._index.commits
        return self._entries.get(id)

    def kept(self, id: str) -> ClosedExperiment | None:
        """The experiment, where its files were the same a moment ago; None where that takes looking."""
        found, entry = self._open.get(id), self.known_entry(id)
        if found is None or entry is None or found.folder != entry.folder or not found.is_fresh:
            return None
        self._open.move_to_end(id)
        return found

    async def read(self, id: str, choose: Callable[[ClosedExperiment], Callable[[sqlite3.Connection], T]]) -> T:
        """Runs on the database what `choose` answers for the experiment that is read.

        Raises NotFound or StoreError.
        """
        entry = await self.entry(id)
        try:
            experiment = await self._opened(entry)
            return await experiment.read(choose(experiment))
        except _Changed:
            await self.release(id)
        fresh = await _open(entry)  # whoever writes it may go on with that: it is read as it is now
        try:
            return await fresh.database.read(choose(fresh))
        finally:
            await fresh.close()

    async def release(self, id: str) -> None:
        """Closes what is kept of an experiment that is resumed, deleted or was changed."""
        if (found := self._open.pop(id, None)) is not None:
            await found.close()

    async def close(self) -> None:
        for id in tuple(self._open):
            await self.release(id)

    async def _opened(self, entry: Entry) -> ClosedExperiment:
        found = self._open.get(entry.id)
        if found is None or found.folder != entry.folder:
            await self.release(entry.id)
            fresh = await _open(entry)
            await self.release(entry.id)  # others may have asked for it meanwhile
            found = self._open[entry.id] = fresh
        self._open.move_to_end(entry.id)
        while len(self._open) > _MOST_OPEN:
            await self.release(next(iter(self._open)))
        return found


class _Changed(Exception):
    """Somebody wrote or exchanged the database."""


async def _open(entry: Entry) -> ClosedExperiment:
    """Opens an experiment for reading. Raises NotFound or StoreError."""
    return ClosedExperiment(entry.folder, *await asyncio.to_thread(_find, entry.folder))


def _find(folder: Folder) -> tuple[Path, _Look, Path | None]:
    """The database, made ours if NNI made it, and a copy of an older one. Blocks, on a disk elsewhere for long."""
    path = folder.require_database()
    experiment_folder.adopt(folder)
    copy = Path(tempfile.gettempdir()) / f"nni-manager-{secrets.token_hex(8)}"
    try:
        look = _look(path)
        return path, look, copy if migrate.upgraded_copy(path, "experiment", copy) else None
    except _Changed:
        raise StoreUnavailable(f"the database {path} went away just now; try again") from None


def _look(path: Path) -> _Look:
    """The state of the files; an empty write-ahead log counts as none. Raises _Changed where there is no database."""
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
