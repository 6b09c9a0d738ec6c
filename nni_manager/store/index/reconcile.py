"""Decides how an experiment is listed: the index and the experiment's own folder may each be older than the other.

The index says whether an experiment is open; the folder says what its status was. The newer of the two counts. A folder
is never removed on the word of the index, and never starts to work on its own word alone.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from nni_manager.domain.errors import StoreCorrupt
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store.folder import Folder
from nni_manager.store.index import index
from nni_manager.store.index.index import Entry, Found


def may_be_newer(known: Entry) -> bool:
    """Whether the folder of a listed experiment has to be read: it moved, could not be read before, or was written
    after the end that the index knows. Blocks."""
    if known.note:
        return True
    changed_ms = _changed_ms(known.folder)
    if known.is_open or changed_ms is None:
        return changed_ms is None
    return known.ended_ms is None or changed_ms > known.ended_ms


def _changed_ms(folder: Folder) -> int | None:
    """When the database was written last; None: it is gone."""
    with suppress(OSError, StoreCorrupt):
        database = folder.database
        times = [database.stat().st_mtime_ns]
        with suppress(OSError):
            times.append(database.with_name(f"{database.name}-wal").stat().st_mtime_ns)
        return max(times) // 1_000_000
    return None


def decide(known: Entry | None, found: Found, *, is_ours: bool, has_jobs: bool) -> Entry | None:
    """The entry to list for a folder; None: the list stays as it is.

    `known`: the present entry of its id, None: the index does not have it. `is_ours`: a daemon of this data directory
    opened it last. `has_jobs`: our keeper runs jobs of it.
    """
    entry = found.entry
    if known is None:
        return _listed(found, opens=has_jobs and is_ours and not found.is_copy)
    is_moved = known.folder != entry.folder
    if is_moved and _changed_ms(known.folder) is not None:
        return None  # both are there: the listed one counts
    if entry.note:
        return _unreadable(known, found, has_jobs=has_jobs)
    if not known.is_open and entry.is_open and is_ours and found.counted_ms > (known.ended_ms or 0):
        return entry  # it was resumed after the index was stored
    if is_moved or known.note:
        return replace(known if known.platform else entry, folder=entry.folder, note="", is_open=known.is_open)
    return None


def _listed(found: Found, *, opens: bool) -> Entry:
    """The entry of a folder that the index does not know."""
    entry = found.entry
    if entry.note:  # what runs of it needs an owner, which can end it
        return replace(entry, status=ExperimentStatus.RUNNING, is_open=True) if opens else entry
    if opens and entry.is_open:
        return entry
    is_nni = found.counted_ms == 0 and not found.owner and entry.status is ExperimentStatus.STOPPED
    return replace(
        entry,
        status=ExperimentStatus.STOPPED,
        ended_ms=entry.ended_ms or found.counted_ms,
        is_open=False,
        endpoint=None,
        is_found=not is_nni,
    )


def _unreadable(known: Entry, found: Found, *, has_jobs: bool) -> Entry | None:
    """The known entry with the sentence; opened, which fails and holds it, where jobs of it run."""
    if known.is_open:
        return None  # why it cannot be opened is shown anyway
    if has_jobs:
        return replace(known, status=ExperimentStatus.RUNNING, is_open=True)
    return replace(known, note=found.entry.note) if known.note != found.entry.note else None


def put_found(connection: sqlite3.Connection, entries: list[Entry], known: Mapping[str, Entry]) -> list[Entry]:
    """Lists the entries and returns them, without those that are being made or deleted meanwhile, and those that are
    listed otherwise than `known`, by which they were decided."""
    left = {id_ for id_, _ in index.leftovers(connection)}
    found = [
        entry
        for entry in entries
        if entry.id not in left
        and index.find(connection, entry.id) == known.get(entry.id)
        and os.path.lexists(entry.folder.path)
    ]
    for entry in found:
        index.put(connection, entry)
    return found
