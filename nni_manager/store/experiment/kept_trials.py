"""The open trials of an experiment, kept in memory by the connection that writes them.

Triggers of that connection note each changed trial, so a turn reads those alone. Everything is read again after a
rollback, which also undoes the notes, and after a commit by another connection.
"""

from __future__ import annotations

import sqlite3
from weakref import WeakKeyDictionary

from nni_manager.domain.trial import OpenTrial
from nni_manager.store.experiment import trials

#: `kept_trials` has the number of the last load, by which a rollback is noticed.
_NOTES = """
CREATE TEMP TABLE changed_trials (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE kept_trials (load INTEGER NOT NULL);
INSERT INTO kept_trials VALUES (0);
"""
_TRIGGER = """
CREATE TEMP TRIGGER {table}_{event} AFTER {event} ON main.{table} BEGIN
    INSERT OR IGNORE INTO changed_trials VALUES ({row}.{id});
END;
"""


class _Kept:
    """What one connection has read. `version`: of the database by other connections' commits."""

    def __init__(self) -> None:
        self.load = 0
        self.version = -1
        self.trials: dict[str, OpenTrial] = {}
        #: The same in their order.
        self.ordered: tuple[OpenTrial, ...] = ()


_kept: WeakKeyDictionary[sqlite3.Connection, _Kept] = WeakKeyDictionary()


def load(connection: sqlite3.Connection) -> tuple[OpenTrial, ...]:
    """All trials that have not ended, oldest first, as `trials.load_open`; within a transaction of `connection`."""
    kept = _kept.setdefault(connection, _Kept())
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    if _noted_load(connection) == kept.load and version == kept.version:
        _read_changed(connection, kept)
    else:
        kept.ordered = trials.load_open(connection)
        kept.trials = {trial.id: trial for trial in kept.ordered}
    kept.load, kept.version = kept.load + 1, version
    connection.execute("DELETE FROM changed_trials")
    connection.execute("UPDATE kept_trials SET load = ?", (kept.load,))
    return kept.ordered


def _noted_load(connection: sqlite3.Connection) -> int | None:
    """The number of the last load that was not rolled back; None: changes are noted from now on."""
    if connection.execute("SELECT 1 FROM temp.sqlite_master WHERE name = 'kept_trials'").fetchone() is None:
        for statement in filter(str.strip, _NOTES.split(";")):  # `executescript` would commit
            connection.execute(statement)
        for table, id_ in (("trials", "id"), ("attempts", "trial_id")):
            for event in ("INSERT", "UPDATE", "DELETE"):
                row = "old" if event == "DELETE" else "new"
                connection.execute(_TRIGGER.format(table=table, event=event, row=row, id=id_))
        return None
    (number,) = connection.execute("SELECT load FROM kept_trials").fetchone()
    return int(number)


def _read_changed(connection: sqlite3.Connection, kept: _Kept) -> None:
    changed = [id_ for (id_,) in connection.execute("SELECT id FROM changed_trials")]
    if not changed:
        return
    read = {trial.id: trial for trial in trials.load_open(connection, among="changed_trials")}  # may raise: first
    for id_ in changed:
        kept.trials.pop(id_, None)
    kept.trials |= read
    kept.ordered = tuple(sorted(kept.trials.values(), key=lambda trial: trial.sequence_id))
