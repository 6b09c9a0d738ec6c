"""Keeps the list of experiments in step with the folders in the data directory.

A folder may be older or newer than the list: after a power failure, or if either was restored from a backup. A folder
may also be copied into the data directory while the daemon runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from nni_manager.domain.errors import PlatformError, StoreError
from nni_manager.machines.keeper import orphaned_jobs
from nni_manager.scheduler.experiments.services import SharedParts
from nni_manager.store.database import Database
from nni_manager.store.folder import Folder
from nni_manager.store.index import index, reconcile
from nni_manager.store.index.index import Entry, Found

log = logging.getLogger(__name__)

#: Seconds that a start waits for the keeper's list of jobs.
_KEEPER_PATIENCE_S = 20.0

#: Identity of a file: inode, size, and time of the last change in nanoseconds.
_Stamp = tuple[int, int, int]


class FoundFolders:
    """The folders of one data directory, for its daemon."""

    def __init__(self, index_database: Database, shared: SharedParts) -> None:
        self._index = index_database
        self._shared = shared
        self._directory = shared.settings.data_dir
        #: Folders that were read and are not listed, or are unreadable: path → state of their database then.
        self._seen: dict[str, _Stamp | None] = {}
        self._looking = asyncio.Lock()
        #: Paths of folders that the last check left for the next one.
        self._undecided: frozenset[str] = frozenset()

    async def reconcile(self) -> None:
        """Compares the list with all folders when the daemon starts. Raises StoreError."""
        known = {entry.id: entry for entry in await self._index.read(index.all_entries)}
        found = await asyncio.to_thread(_read_changed, self._directory, known)
        if found:
            await self._list(known, found)

    async def look(self, entries: Sequence[Entry]) -> bool:
        """Lists folders that appeared since, or became readable; returns whether there was one. `entries`: the present
        list."""
        async with self._looking:
            known = {entry.id: entry for entry in entries}
            settled = {str(entry.folder.path) for entry in entries if not entry.note}
            new = await asyncio.to_thread(_new_folders, self._directory, settled, self._seen)
            if not new:
                return False
            left = {str(folder.path) for _, folder in await self._index.read(index.leftovers)}
            at_rest = {path: stamp for path, stamp in new.items() if path not in left}
            found = await asyncio.to_thread(_read_all, at_rest)
            is_changed = await self._list(known, found)
            self._seen |= {path: stamp for path, stamp in at_rest.items() if path not in self._undecided}
            return is_changed

    async def _list(self, known: Mapping[str, Entry], found: Sequence[Found]) -> bool:
        """Decides for each folder; originals come before copies of the same id."""
        waiting = [one for one in found if _needs_jobs(known, one)]
        with_jobs = await self._ids_with_jobs() if waiting else {}
        self._undecided = frozenset[str]()
        if with_jobs is None:  # they are checked again
            self._undecided = frozenset(str(one.entry.folder.path) for one in waiting)
            found = [one for one in found if one not in waiting]
            with_jobs = {}
        entries: dict[str, Entry] = {}
        for one in sorted(found, key=lambda one: one.is_copy):
            id_, is_ours = one.entry.id, self._shared.owns(one.owner)
            if id_ in entries:
                log.warning("%s also contains experiment %s; it is not listed", one.entry.folder.path, id_)
                continue
            # With the jobs here and another owner, the identity was lost: opened, it is held until a person decides.
            runs = bool(with_jobs.get(id_))
            # jobs that ended while no daemon ran belong to the folder's owner; another folder may be a copy
            has_jobs = runs or (is_ours and id_ in with_jobs)
            is_ours = is_ours or bool(one.entry.note) or (id_ not in known and runs)
            entry = reconcile.decide(known.get(id_), one, is_ours=is_ours, has_jobs=has_jobs)
            if entry is not None:
                entries[id_] = entry
        if not entries:
            return False
        listed = await self._index.write(lambda c: reconcile.put_found(c, [*entries.values()], known))
        for entry in listed:
            log.warning("the list and the folder of experiment %s differed; it is now %s", entry.id, _told(entry))
        return bool(listed)

    async def _ids_with_jobs(self) -> Mapping[str, Sequence[str]] | None:
        """As `orphaned_jobs.running` at the keeper of this machine; None: it does not answer."""
        if not await asyncio.to_thread((self._directory / "keeper").is_dir):
            return {}
        try:
            async with asyncio.timeout(_KEEPER_PATIENCE_S):
                return await orphaned_jobs.running(self._shared.keeper)
        except (PlatformError, TimeoutError, OSError) as error:
            log.warning("the keeper does not answer, so the experiments with jobs here are unknown: %s", error)
            return None


def _told(entry: Entry) -> str:
    return f"listed as {entry.status}, in {entry.folder.path}{f': {entry.trouble}' if entry.trouble else ''}"


def _needs_jobs(known: Mapping[str, Entry], found: Found) -> bool:
    """Whether the decision depends on running jobs."""
    listed = known.get(found.entry.id)
    return bool(found.entry.note) or (listed is None and found.entry.is_open)


def _read_changed(data_directory: Path, known: Mapping[str, Entry]) -> list[Found]:
    """The folders that may differ from the list. Blocks."""
    listed = {entry.folder.path: entry for entry in known.values()}
    settled = {path for path, entry in listed.items() if not reconcile.may_be_newer(entry)}
    below = [folder for folder in index.folders_in(data_directory) if folder.path not in settled]
    there = {folder.path for folder in below}
    elsewhere = [Folder(path) for path in listed if path not in settled | there and path.exists()]
    # the results of most are in the list
    with_results = {folder.path for folder in below if folder.path not in listed or listed[folder.path].note}
    found = (index.find_folder(one, with_results=one.path in with_results) for one in (*below, *elsewhere))
    return [*filter(None, found)]


def _read_all(paths: Iterable[str]) -> list[Found]:
    return [one for path in paths if (one := index.find_folder(Folder(Path(path)))) is not None]


def _new_folders(
    data_directory: Path, settled: Collection[str], seen: Mapping[str, _Stamp | None]
) -> dict[str, _Stamp | None]:
    """Paths of folders that are not `settled`, and whose databases are not in `seen`: path → database. Blocks."""
    found = {}
    with os.scandir(data_directory) as items:
        paths = [item.path for item in items if item.path not in settled and item.is_dir()]
    for path in paths:
        if os.path.isdir(f"{path}/db") and not index.is_second_name(Path(path)):
            stamp = _stamp(Folder(Path(path)))
            if path not in seen or seen[path] != stamp:
                found[path] = stamp
    return found


def _stamp(folder: Folder) -> _Stamp | None:
    """The present state of the database; None: it does not exist yet."""
    try:
        found = os.stat(folder.database)
    except (OSError, StoreError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
