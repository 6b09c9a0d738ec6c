"""The history that a tuner is started with: results in the order trials ended, and open trials."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

#: JSON object as the tuner process takes it.
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
    """Trials that had not ended by the end order `until`, in the order they were made; those that have ended since have
    their ``end_order``."""
    rows = connection.execute(
        f"SELECT {_ITEM} FROM trials WHERE end_order IS NULL OR end_order > ? ORDER BY sequence_id", (until,)
    ).fetchall()
    return [_item(connection, row, False) for row in rows]


def imported(connection: sqlite3.Connection) -> list[list[Item]]:
    """Imported trial data, one list per import."""
    return [json.loads(data) for (data,) in connection.execute("SELECT data FROM imports ORDER BY id")]


def results(connection: sqlite3.Connection) -> list[Item]:
    """``parameter`` and ``value`` of trials that succeeded with a final result, in the order of their ends."""
    rows = connection.execute(
        "SELECT record, final_data FROM trials WHERE status = 'SUCCEEDED' AND final_data IS NOT NULL ORDER BY end_order"
    )
    return [{"parameter": json.loads(record)["parameters"], "value": json.loads(data)} for record, data in rows]


def intermediates(connection: sqlite3.Connection, trial_id: str) -> list[Any]:
    """Values of the current attempt's intermediate results, in order."""
    rows = connection.execute(
        "SELECT m.data FROM metrics m JOIN trials t ON t.id = m.trial_id AND t.attempt = m.attempt"
        " WHERE m.trial_id = ? AND m.type = 'PERIODICAL' ORDER BY m.sequence",
        (trial_id,),
    )
    return [json.loads(data) for (data,) in rows]


def open_intermediates(connection: sqlite3.Connection, trial_ids: Sequence[str]) -> list[Item]:
    """Id, parameter id and intermediate results (`values`) of several trials, without trials that have ended."""
    query = "SELECT id, parameter_id FROM trials WHERE end_order IS NULL AND id IN (SELECT value FROM json_each(?))"
    found = connection.execute(query, (json.dumps(list(trial_ids)),)).fetchall()
    return [
        {"trial_id": id_, "parameter_id": number, "values": intermediates(connection, id_)} for id_, number in found
    ]


def _item(connection: sqlite3.Connection, row: tuple[Any, ...], with_intermediates: bool) -> Item:
    id_, parameter_id, record_text, status, final_data, end_order = row
    record = json.loads(record_text)
    return {
        "trial_id": id_,
        "parameter_id": parameter_id,
        "parameters": record["parameters"],
        "source": record["parameter_source"],
        "status": status,
        "value": json.loads(final_data) if final_data is not None else None,
        "end_order": end_order,
        "intermediates": intermediates(connection, id_) if with_intermediates else [],
    }
