"""Counts of trials by status, at a cost that does not grow with the number of trials."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from nni_manager.domain.trial import TrialStatus

#: Open statuses; the index on status finds these few trials.
_UNENDED = tuple(status for status in TrialStatus if not status.is_final)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTally:
    """Trials by status. `told`: highest end order counted in `ended`; the next count reads only later ends."""

    told: int = 0
    ended: Mapping[str, int] = field(default_factory=dict)
    unended: Mapping[str, int] = field(default_factory=dict)
    #: Code of the recorded hold; empty without one.
    hold: str = ""

    @property
    def by_status(self) -> dict[str, int]:
        """Trials by status, with 0 for statuses without any."""
        return {status.value: self.ended.get(status, 0) + self.unended.get(status, 0) for status in TrialStatus}


def count(connection: sqlite3.Connection, before: TrialTally) -> TrialTally:
    """`before`: the last tally since the experiment was opened (a resume, which undoes ends, needs it closed). Reads
    one consistent state."""
    connection.execute("BEGIN")
    try:
        ended, told = _ended_since(connection, before.told)
        return TrialTally(
            told=told, ended=Counter(before.ended) + ended, unended=_unended(connection), hold=_hold(connection)
        )
    finally:
        connection.execute("COMMIT")


def _ended_since(connection: sqlite3.Connection, told: int) -> tuple[Counter[str], int]:
    rows = connection.execute(
        "SELECT status, count(*), max(end_order) FROM trials INDEXED BY trials_by_end"
        " WHERE end_order > ? GROUP BY status",
        (told,),
    ).fetchall()
    return Counter({status: number for status, number, _ in rows}), max((row[2] for row in rows), default=told)


def _unended(connection: sqlite3.Connection) -> dict[str, int]:
    marks = ", ".join("?" for _ in _UNENDED)
    query = f"SELECT status, count(*) FROM trials WHERE status IN ({marks}) GROUP BY status"
    return dict(connection.execute(query, _UNENDED).fetchall())


def _hold(connection: sqlite3.Connection) -> str:
    (code,) = connection.execute("SELECT hold_code FROM experiment").fetchone()
    return str(code)
