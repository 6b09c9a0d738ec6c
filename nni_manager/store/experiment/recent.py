"""What happened last in an experiment, and what its waiting trials wait for."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    #: Number of trials that wait.
    trials: int
    #: What most of them wait for; empty: none waits.
    sentence: str
    #: Number of those that wait for that.
    alike: int


def ends(connection: sqlite3.Connection, limit: int) -> list[int]:
    """Times at which trials ended in ms since the epoch, the last ones first."""
    query = "SELECT ended_ms FROM trials WHERE end_order IS NOT NULL ORDER BY end_order DESC LIMIT ?"
    return [ms for (ms,) in connection.execute(query, (limit,)) if ms is not None]


def changed_ms(connection: sqlite3.Connection) -> int | None:
    """The latest time at which a trial was made, started or ended, in ms since the epoch; None: there is no trial."""
    query = (
        "SELECT max(ms) FROM (SELECT * FROM (SELECT created_ms AS ms FROM trials ORDER BY sequence_id DESC LIMIT 1)"
        " UNION ALL SELECT max(started_ms) FROM trials WHERE status IN ('RUNNING', 'UNKNOWN') UNION ALL SELECT * FROM"
        " (SELECT ended_ms FROM trials WHERE end_order IS NOT NULL ORDER BY end_order DESC LIMIT 1))"
    )
    found: int | None = connection.execute(query).fetchone()[0]
    return found


def waiting(connection: sqlite3.Connection) -> Waiting:
    """The trials that wait, and the commonest reason."""
    query = (
        "SELECT count(*), wait_sentence FROM trials WHERE status = 'WAITING' GROUP BY wait_code, wait_sentence"
        " ORDER BY count(*) DESC, wait_sentence"
    )
    rows = connection.execute(query).fetchall()
    alike, sentence = rows[0] if rows else (0, "")
    return Waiting(trials=sum(count for count, _ in rows), sentence=sentence, alike=alike)
