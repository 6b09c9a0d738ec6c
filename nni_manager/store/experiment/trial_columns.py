"""Trials as columns, for the process that answers questions about them: only rows that may have changed are read again.

Rows are plain tuples, in the order of the names in each docstring.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from nni_manager.domain.trial_status import OPEN_STATUSES
from nni_manager.store.experiment import learning_curves
from nni_manager.store.experiment.answers import TRIAL, TRIALS

Row = tuple[Any, ...]

_OPEN = ", ".join(f"'{status}'" for status in OPEN_STATUSES)
#: Columns of `changed`, in its order.
COLUMNS = (
    "sequence_id",
    "id",
    "status",
    "created_ms",
    "started_ms",
    "ended_ms",
    "intermediates",
    "last_value",
    "final_value",
    "has_final",
    "final_object",
    "words",
)
#: A trial's ``words``, a JSON list; None for most trials, as all of it is empty.
WORDS = ("failure_key", "reason", "message", "last_words", "wait_sentence")
_HAS_WORDS = " OR ".join(f"{name} <> ''" for name in WORDS)
_SELECT = (
    "SELECT sequence_id, id, status, created_ms, started_ms, ended_ms, intermediates, last_value, final_value,"
    " final_data IS NOT NULL, CASE WHEN instr(final_data, '{') THEN final_data END,"
    f" CASE WHEN {_HAS_WORDS} THEN json_array({', '.join(WORDS)}) END FROM trials"
)


class Head(NamedTuple):
    """The identity of an experiment's content, and its progress."""

    created_ms: int
    #: JSON, as stored; secrets included: never log it.
    config: str
    #: As in `StoredExperiment`.
    class_direction: str
    #: End order of the trial that ended last.
    ended: int
    #: Number of trials.
    trials: int


def head(connection: sqlite3.Connection) -> Head:
    query = "SELECT created_ms, config, class_direction, ended_trials, (SELECT count(*) FROM trials) FROM experiment"
    return Head(*connection.execute(query).fetchone())


def all_trials(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """All trials by number, as `COLUMNS`."""
    return connection.execute(f"{_SELECT} ORDER BY sequence_id")


def changed(connection: sqlite3.Connection, ended: int) -> sqlite3.Cursor:
    """Open trials, and those with an end order above `ended`, as `COLUMNS`. A trial reopened by a resume is open, or
    ends with a later order."""
    # the plus keeps SQLite from scanning all trials in the order of that column's index
    query = f"{_SELECT} WHERE status IN ({_OPEN}) OR end_order > ? ORDER BY +sequence_id"
    return connection.execute(query, (ended,))


def records(connection: sqlite3.Connection, after: int, limit: int) -> list[tuple[int, str]]:
    """(number, parameter record) of `limit` trials with numbers above `after`."""
    query = "SELECT sequence_id, record FROM trials WHERE sequence_id > ? ORDER BY sequence_id LIMIT ?"
    return connection.execute(query, (after, limit)).fetchall()


_ATTEMPTS = (
    "SELECT t.sequence_id, a.number, coalesce(nullif(a.place, ''), a.service), a.started_ms, a.ended_ms"
    " FROM attempts a JOIN trials t ON t.id = a.trial_id"
)


def all_attempts(connection: sqlite3.Connection) -> list[Row]:
    """(number of the trial, number of the attempt, place or service, started, ended) of all attempts."""
    return connection.execute(_ATTEMPTS).fetchall()


def attempts_of(connection: sqlite3.Connection, ids: Sequence[str]) -> list[Row]:
    """The same for the attempts of some trials."""
    query = f"{_ATTEMPTS} WHERE a.trial_id IN (SELECT value FROM json_each(?))"
    return connection.execute(query, (json.dumps(list(ids)),)).fetchall()


def described(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Trial id → the trial as in the API's list."""
    query = f"SELECT {TRIAL} FROM {TRIALS} WHERE t.id IN (SELECT value FROM json_each(?))"
    found = (json.loads(text) for (text,) in connection.execute(query, (json.dumps(list(ids)),)))
    return {trial["id"]: trial for trial in found}


def intermediates(connection: sqlite3.Connection, id: str) -> list[Row]:
    """(stored ms, value or None, data) of the learning curve of a trial, by step."""
    if learning_curves.with_steps(connection, [id]):
        points = learning_curves.load(connection, [id]).get(id, ())
        return [(point.stored_ms, point.value, point.data) for point in points]
    query = (
        "SELECT stored_ms, value, data FROM metrics WHERE trial_id = ? AND type = 'PERIODICAL'"
        " AND attempt = (SELECT attempt FROM trials WHERE id = trial_id) ORDER BY sequence"
    )
    return connection.execute(query, (id,)).fetchall()


def intermediates_of(connection: sqlite3.Connection, numbers: Sequence[int], *, data: bool) -> list[Row]:
    """(number of the trial, step, stored ms, value or None) of the learning curves of some trials, by trial and step.
    `data`: the reported result instead of its value."""
    query = (
        f"SELECT t.sequence_id, m.sequence, m.stored_ms, {'m.data' if data else 'm.value'} FROM trials t JOIN metrics m"
        " ON m.trial_id = t.id AND m.attempt = t.attempt"
        " WHERE t.sequence_id IN (SELECT value FROM json_each(?)) AND m.type = 'PERIODICAL'"
        " ORDER BY t.sequence_id, m.sequence"
    )
    rows = connection.execute(query, (json.dumps(list(numbers)),)).fetchall()
    stepped = _with_steps(connection, numbers)
    if not stepped:
        return rows
    curves = learning_curves.load(connection, list(stepped))
    merged = [
        (stepped[trial_id], point.step, point.stored_ms, point.data if data else point.value)
        for trial_id, curve in curves.items()
        for point in curve
    ]
    with_steps = set(stepped.values())
    others = [row for row in rows if row[0] not in with_steps]
    return sorted([*others, *merged], key=lambda row: row[:2])


def _with_steps(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[str, int]:
    """Id → number, for those of the trials that reported steps."""
    if (
        connection.execute("SELECT 1 FROM metrics INDEXED BY metrics_with_step WHERE step IS NOT NULL").fetchone()
        is None
    ):
        return {}
    query = "SELECT id, sequence_id FROM trials WHERE sequence_id IN (SELECT value FROM json_each(?))"
    ids = dict(connection.execute(query, (json.dumps(list(numbers)),)).fetchall())
    return {trial_id: ids[trial_id] for trial_id in learning_curves.with_steps(connection, list(ids))}


def failure_evidence(connection: sqlite3.Connection, id: str) -> Row | None:
    """(attempt, cause, exit code, signal, stderr line with the cause) of a trial's current attempt; None: none."""
    query = (
        "SELECT a.number, a.cause, a.exit_code, a.signal, t.last_words FROM attempts a JOIN trials t"
        " ON t.id = a.trial_id AND a.number = t.attempt WHERE t.id = ?"
    )
    row: Row | None = connection.execute(query, (id,)).fetchone()
    return row
