"""The history that a tuner is started with: results in the order trials ended, and open trials."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from nni_manager.store.experiment import learning_curves

#: JSON object in the form of the tuner process.
Item = dict[str, Any]

_ITEM = "id, parameter_id, record, status, final_data, end_order"


def ended(connection: sqlite3.Connection, *, after: int, until: int | None = None, intermediates: bool) -> list[Item]:
    """Results with an end order above `after`, up to `until`; each item has its ``end_order``."""
    rows = connection.execute(
        f"SELECT {_ITEM} FROM trials WHERE end_order > ? AND end_order <= ? ORDER BY end_order",
        (after, until if until is not None else 1 << 62),
    ).fetchall()
    return [_item(connection, row, intermediates) for row in rows]


def unfinished(connection: sqlite3.Connection, *, until: int) -> list[Item]:
    """Trials that had not ended by the end order `until`, in the order of creation; those that have ended since have
    their ``end_order``."""
    rows = connection.execute(
        f"SELECT {_ITEM} FROM trials WHERE end_order IS NULL OR end_order > ? ORDER BY sequence_id", (until,)
    ).fetchall()
    return [_item(connection, row, False) for row in rows]


def imported(connection: sqlite3.Connection) -> list[list[Item]]:
    """Imported trial data, one list per import."""
    return [json.loads(data) for (data,) in connection.execute("SELECT data FROM imports ORDER BY id")]


def results(connection: sqlite3.Connection) -> list[Item]:
    """``parameter`` and ``value`` of succeeded trials with a final result, in the order of their ends."""
    rows = connection.execute(
        "SELECT record, final_data FROM trials WHERE status = 'SUCCEEDED' AND final_data IS NOT NULL ORDER BY end_order"
    )
    return [{"parameter": json.loads(record)["parameters"], "value": json.loads(data)} for record, data in rows]


def intermediates(connection: sqlite3.Connection, trial_id: str) -> Item:
    """The current attempt's intermediate results: `values`, in order; their `steps`, if some were reported with one,
    and `earlier`, [[step, value]] of the attempts that it continues."""
    rows = connection.execute(
        "SELECT m.data, coalesce(m.step, m.sequence), m.step IS NOT NULL FROM metrics m JOIN trials t"
        " ON t.id = m.trial_id AND t.attempt = m.attempt"
        " WHERE m.trial_id = ? AND m.type = 'PERIODICAL' ORDER BY m.sequence",
        (trial_id,),
    ).fetchall()
    found: Item = {"values": [json.loads(data) for data, *_ in rows]}
    if any(is_reported for *_, is_reported in rows):
        points = learning_curves.load(connection, [trial_id])[trial_id]
        (current,) = connection.execute("SELECT attempt FROM trials WHERE id = ?", (trial_id,)).fetchone()
        found["steps"] = [step for _, step, _ in rows]
        found["earlier"] = [[point.step, json.loads(point.data)] for point in points if point.attempt < current]
    return found


def open_intermediates(connection: sqlite3.Connection, trial_ids: Sequence[str]) -> list[Item]:
    """Id, parameter id, attempt and `intermediates` of several trials, without trials that have ended."""
    query = (
        "SELECT id, parameter_id, attempt FROM trials"
        " WHERE end_order IS NULL AND id IN (SELECT value FROM json_each(?))"
    )
    found = connection.execute(query, (json.dumps(list(trial_ids)),)).fetchall()
    return [
        {"trial_id": id_, "parameter_id": number, "attempt": attempt, **intermediates(connection, id_)}
        for id_, number, attempt in found
    ]


def _item(connection: sqlite3.Connection, row: tuple[Any, ...], with_intermediates: bool) -> Item:
    id_, parameter_id, record_text, status, final_data, end_order = row
    record = json.loads(record_text)
    reported = intermediates(connection, id_) if with_intermediates else {"values": []}
    return {
        "trial_id": id_,
        "parameter_id": parameter_id,
        "parameters": record["parameters"],
        "source": record["parameter_source"],
        "status": status,
        "value": json.loads(final_data) if final_data is not None else None,
        "end_order": end_order,
        "intermediates": reported.pop("values"),
        **reported,
    }
