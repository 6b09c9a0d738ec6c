"""The Pareto set of an experiment with objectives, from its database.

Descriptions are asked for several times a second. What is known of the trials that have ended is therefore kept in
memory, for the experiments that were asked for last, and only trials that ended since are held against it.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nni_manager.domain.objectives import pareto
from nni_manager.domain.objectives.goals import Goals, Worth
from nni_manager.store import stored_config

#: The most trials of a set that a description has; an export says of every trial whether it is in the set.
MOST = 100
_ENDED = "status = 'SUCCEEDED' AND final_data IS NOT NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoTrial:
    """A trial of a Pareto set."""

    trial_id: str
    #: Objective → its number in the final result.
    values: Mapping[str, float]
    #: Whether it satisfies all constraints; when one does not, none of the set does.
    is_feasible: bool
    #: As the trial got them; NaN and infinity are null.
    parameters: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoSet:
    #: Number of trials in the set.
    size: int
    #: At most `MOST` of them, the best of the first objective first.
    trials: tuple[ParetoTrial, ...]


@dataclass(slots=True)
class _Known:
    """The set of the trials of one database that ended up to some end order."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    goals: Goals | None = None
    #: Number of these trials and the sum of their end orders: a change of the past shows in them.
    past: tuple[int, int] = (0, 0)
    #: The last end order.
    last: int = 0
    front: list[tuple[str, Worth]] = field(default_factory=list)


def load(connection: sqlite3.Connection, config: Mapping[str, Any]) -> ParetoSet | None:
    """The set of the experiment; `config`: its own, canonical. None: it has no objectives."""
    goals = stored_config.goals(config)
    if goals is None:
        return None
    front = _front(connection, goals)
    parameters = _parameters(connection, [trial_id for trial_id, _ in front[:MOST]])
    trials = tuple(
        ParetoTrial(
            trial_id=trial_id,
            values=goals.values(worth.losses),
            is_feasible=worth.is_feasible,
            parameters=parameters[trial_id],
        )
        for trial_id, worth in front[:MOST]
    )
    return ParetoSet(size=len(front), trials=trials)


def members(connection: sqlite3.Connection) -> list[str] | None:
    """The ids of the trials in the set; None: the experiment has no objectives."""
    (config,) = connection.execute("SELECT config FROM experiment").fetchone()
    goals = stored_config.goals(json.loads(config))
    return None if goals is None else [trial_id for trial_id, _ in _front(connection, goals)]


def _front(connection: sqlite3.Connection, goals: Goals) -> list[tuple[str, Worth]]:
    (_, _, path) = connection.execute("PRAGMA database_list").fetchone()
    known = _known(path) if path else _Known()
    with known.lock:
        if known.goals != goals or _past(connection, known.last) != known.past:
            known.goals, known.past, known.last, known.front = goals, (0, 0), 0, []
        rows = connection.execute(
            f"SELECT id, final_data, end_order FROM trials WHERE {_ENDED} AND end_order > ? ORDER BY end_order",
            (known.last,),
        ).fetchall()
        _take(known, goals, rows)
        return known.front


@lru_cache(maxsize=64)
def _known(path: str) -> _Known:
    return _Known()


def _past(connection: sqlite3.Connection, until: int) -> tuple[int, int]:
    query = f"SELECT count(*), coalesce(sum(end_order), 0) FROM trials WHERE {_ENDED} AND end_order <= ?"
    count, total = connection.execute(query, (until,)).fetchone()
    return count, total


def _take(known: _Known, goals: Goals, rows: Sequence[tuple[str, str, int]]) -> None:
    """`rows`: id, final result and end order of trials that ended later than those that are known."""
    if not rows:
        return
    worths = ((trial_id, goals.judge(json.loads(text))) for trial_id, text, _ in rows)
    known.front = pareto.extended(known.front, [(id_, worth) for id_, worth in worths if worth is not None])
    known.past = (known.past[0] + len(rows), known.past[1] + sum(end for *_, end in rows))
    known.last = rows[-1][2]


def _parameters(connection: sqlite3.Connection, trial_ids: list[str]) -> dict[str, Any]:
    query = "SELECT id, record FROM trials WHERE id IN (SELECT value FROM json_each(?))"
    rows = connection.execute(query, (json.dumps(trial_ids),))
    return {id_: json.loads(record, parse_constant=lambda _: None)["parameters"] for id_, record in rows}
