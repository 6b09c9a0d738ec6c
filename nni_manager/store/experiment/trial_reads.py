"""Short reads about trials, for pages and metrics, in addition to the API's answers."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nni_manager.domain.errors import NotFound
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store.experiment import answers


def id_of(connection: sqlite3.Connection, number: int) -> str:
    """The id of the trial with this sequence id. Raises NotFound."""
    row = connection.execute("SELECT id FROM trials WHERE sequence_id = ?", (number,)).fetchone()
    if row is None:
        raise NotFound(f"cannot find trial number {number}")
    return str(row[0])


def neighbours(connection: sqlite3.Connection, number: int) -> tuple[int | None, int | None]:
    """The numbers of the trials before and after this one; None: there is none."""
    found: tuple[int | None, int | None] = connection.execute(
        "SELECT (SELECT max(sequence_id) FROM trials WHERE sequence_id < :n),"
        " (SELECT min(sequence_id) FROM trials WHERE sequence_id > :n)",
        {"n": number},
    ).fetchone()
    return found


def repetitions(connection: sqlite3.Connection, id: str) -> list[int]:
    """The numbers of at most 100 trials that repeat this one, oldest first."""
    rows = connection.execute("SELECT sequence_id FROM trials WHERE repeats = ? ORDER BY sequence_id LIMIT 100", (id,))
    return [number for (number,) in rows]


def number_of(connection: sqlite3.Connection, id: str) -> int | None:
    """The number of a trial; None: it does not exist."""
    row = connection.execute("SELECT sequence_id FROM trials WHERE id = ?", (id,)).fetchone()
    return row and int(row[0])


def of_numbers(connection: sqlite3.Connection, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """The trials with these numbers in the API's form, in the order of the numbers; unknown ones are omitted."""
    query = "SELECT sequence_id, id FROM trials WHERE sequence_id IN (SELECT value FROM json_each(?))"
    ids = dict(connection.execute(query, (json.dumps(list(numbers)),)).fetchall())
    return [json.loads(answers.trial(connection, ids[number])) for number in numbers if number in ids]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    #: Number of waiting trials.
    trials: int
    #: The most frequent wait reason; empty: none waits.
    sentence: str
    #: Number of trials with that reason.
    alike: int


def ends(connection: sqlite3.Connection, limit: int) -> list[int]:
    """Times at which trials ended in ms since the epoch, latest first."""
    query = "SELECT ended_ms FROM trials WHERE end_order IS NOT NULL ORDER BY end_order DESC LIMIT ?"
    return [ms for (ms,) in connection.execute(query, (limit,)) if ms is not None]


def changed_ms(connection: sqlite3.Connection) -> int | None:
    """The latest time at which a trial was created, started or ended, in ms since the epoch; None: without
    trials."""
    query = (
        "SELECT max(ms) FROM (SELECT * FROM (SELECT created_ms AS ms FROM trials ORDER BY sequence_id DESC LIMIT 1)"
        " UNION ALL SELECT max(started_ms) FROM trials WHERE status IN ('RUNNING', 'UNKNOWN') UNION ALL SELECT * FROM"
        " (SELECT ended_ms FROM trials WHERE end_order IS NOT NULL ORDER BY end_order DESC LIMIT 1))"
    )
    found: int | None = connection.execute(query).fetchone()[0]
    return found


def waiting(connection: sqlite3.Connection) -> Waiting:
    """The waiting trials, and the most frequent reason."""
    query = (
        "SELECT count(*), wait_sentence FROM trials WHERE status = 'WAITING' GROUP BY wait_code, wait_sentence"
        " ORDER BY count(*) DESC, wait_sentence"
    )
    rows = connection.execute(query).fetchall()
    alike, sentence = rows[0] if rows else (0, "")
    return Waiting(trials=sum(count for count, _ in rows), sentence=sentence, alike=alike)


#: Open statuses; the index on status finds these few trials.
_UNENDED = tuple(status for status in TrialStatus if not status.is_final)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTally:
    """Trials by status. `told`: highest end order counted in `ended`; the next count reads only later ends."""

    told: int = 0
    ended: Mapping[str, int] = field(default_factory=dict)
    unended: Mapping[str, int] = field(default_factory=dict)
    #: Code of the recorded hold; empty: none.
    hold: str = ""

    @property
    def by_status(self) -> dict[str, int]:
        """Trials by status, including zeros."""
        return {status.value: self.ended.get(status, 0) + self.unended.get(status, 0) for status in TrialStatus}


def tally(connection: sqlite3.Connection, before: TrialTally) -> TrialTally:
    """`before`: the last tally since the experiment was opened (a resume, which undoes ends, requires closing it
    first). Reads one consistent state."""
    connection.execute("BEGIN")
    try:
        rows = connection.execute(
            "SELECT status, count(*), max(end_order) FROM trials INDEXED BY trials_by_end"
            " WHERE end_order > ? GROUP BY status",
            (before.told,),
        ).fetchall()
        marks = ", ".join("?" for _ in _UNENDED)
        query = f"SELECT status, count(*) FROM trials WHERE status IN ({marks}) GROUP BY status"
        (code,) = connection.execute("SELECT hold_code FROM experiment").fetchone()
        return TrialTally(
            told=max((row[2] for row in rows), default=before.told),
            ended=Counter(before.ended) + Counter({status: number for status, number, _ in rows}),
            unended=dict(connection.execute(query, _UNENDED).fetchall()),
            hold=str(code),
        )
    finally:
        connection.execute("COMMIT")
