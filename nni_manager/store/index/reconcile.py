"""Decides how an experiment is listed: the index and the experiment's own folder may each be older than the other.

The index says whether an experiment is open; the folder says what its status was. The newer one counts. The index alone
never causes the removal of a folder, and a folder alone never starts an experiment.
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
    """Whether the folder of a listed experiment must be read: it moved, was unreadable before, or was written after the
    end in the index. Blocks."""
    if known.note:
        return True
    changed_ms = _changed_ms(known.folder)
    if known.is_open or changed_ms is None:
        return changed_ms is None
    return known.ended_ms is None or changed_ms > known.ended_ms


def _changed_ms(folder: Folder) -> int | None:
    """Time of the last write to the database; None: it is gone."""
    with suppress(OSError, StoreCorrupt):
        database = folder.database
        times = [database.stat().st_mtime_ns]
        with suppress(OSError):
            times.append(database.with_name(f"{database.name}-wal").stat().st_mtime_ns)
        return max(times) // 1_000_000
    return None


def decide(known: Entry | None, found: Found, *, is_ours: bool, has_jobs: bool) -> Entry | None:
    """The entry to list for a folder; None: the list stays unchanged.

    `known`: the present entry of its id, None: missing in the index. `is_ours`: a daemon of this data directory opened
    it last. `has_jobs`: our keeper runs jobs of it.
    """
    entry = found.entry
    if known is None:
        return _listed(found, opens=has_jobs and is_ours and not found.is_copy)
    is_moved = known.folder != entry.folder
    if is_moved and _changed_ms(known.folder) is not None:
        return None  # both exist: the listed one counts
    if entry.note:
        return _unreadable(known, found, has_jobs=has_jobs)
    if not known.is_open and entry.is_open and is_ours and found.counted_ms > (known.ended_ms or 0):
        return entry  # it was resumed after the index was stored
    if is_moved or known.note:
        return replace(known if known.platform else entry, folder=entry.folder, note="", is_open=known.is_open)
    return None


def _listed(found: Found, *, opens: bool) -> Entry:
    """The entry of a folder that is missing in the index."""
    entry = found.entry
    if entry.note:  # its running jobs need an owner that can end them
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
    """The known entry with the sentence. If jobs of it run, it is opened, which fails and puts it on hold."""
    if known.is_open:
        return None  # the reason why it cannot be opened is displayed anyway
    if has_jobs:
        return replace(known, status=ExperimentStatus.RUNNING, is_open=True)
    return replace(known, note=found.entry.note) if known.note != found.entry.note else None


def put_found(connection: sqlite3.Connection, entries: list[Entry], known: Mapping[str, Entry]) -> list[Entry]:
    """Lists the entries and returns them, except those that are being created or deleted meanwhile, and those whose
    listing differs from `known`, on which the decision was based."""
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
