"""The best results of an experiment: their course, in few numbers, and the Pareto set of one with objectives.

Open experiments are queried at every change of a list, several times a second. So the data of ended trials is cached in
memory, for the most recently queried experiments, and only later ends are read.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nni_manager.domain.objectives import Goals, Worth, extended_set
from nni_manager.store import stored_config

#: Maximum number of values in a course.
MOST_STEPS = 40
_WITH_NUMBER = "status = 'SUCCEEDED' AND final_value IS NOT NULL AND abs(final_value) < 9e999"


@dataclass(slots=True)
class _KnownCourse:
    lock: threading.Lock = field(default_factory=threading.Lock)
    #: End order of the last result that was read, and the sum of all end orders.
    last: int = 0
    total: int = 0
    read: int = 0
    #: Number of comparable results.
    count: int = 0
    #: (number of the result, its value) of each that was better than all before.
    steps: list[tuple[int, float]] = field(default_factory=list)

    def add(self, value: float, *, maximizes: bool) -> None:
        best = self.steps[-1][1] if self.steps else None
        if best is None or (value > best if maximizes else value < best):
            self.steps.append((self.count, value))
        self.count += 1


def load_course(connection: sqlite3.Connection, config: Mapping[str, Any], *, maximizes: bool) -> tuple[float, ...]:
    """The best so far after each of at most `MOST_STEPS` equal shares of the finite results, in the order of their
    ends.

    With an objective, results that violate a constraint do not count. With several, the course is empty.
    """
    (_, _, path) = connection.execute("PRAGMA database_list").fetchone()
    goals = stored_config.goals(config)
    if goals is not None and len(goals.objectives) > 1:
        return ()
    known = _known_course(path, maximizes, repr(goals)) if path else _KnownCourse()
    with known.lock:
        _follow(connection, known, goals, maximizes=maximizes)
        return _sampled(known)


@lru_cache(maxsize=64)
def _known_course(path: str, maximizes: bool, goals: str) -> _KnownCourse:
    return _KnownCourse()


def _follow(connection: sqlite3.Connection, known: _KnownCourse, goals: Goals | None, *, maximizes: bool) -> None:
    which, column = (_WITH_NUMBER, "final_value") if goals is None else (_ENDED, "final_data")
    # otherwise a late one was added, or the database was replaced
    if _past(connection, which, known.last) != (known.read, known.total):
        known.last, known.total, known.read, known.count, known.steps = 0, 0, 0, 0, []
    query = f"SELECT {column}, end_order FROM trials WHERE {which} AND end_order > ? ORDER BY end_order"
    for reported, end_order in connection.execute(query, (known.last,)):
        value = reported if goals is None else _feasible_number(goals, reported)
        if value is not None:
            known.add(value, maximizes=maximizes)
        known.last, known.total, known.read = end_order, known.total + end_order, known.read + 1


def _feasible_number(goals: Goals, final: str) -> float | None:
    """The number of the single objective; None: the result violates a constraint, or lacks the number."""
    worth = goals.judge(json.loads(final))
    return next(iter(goals.values(worth.losses).values())) if worth is not None and worth.is_feasible else None


def _sampled(known: _KnownCourse) -> tuple[float, ...]:
    size = min(MOST_STEPS, known.count)
    found, at = [], 0
    for part in range(1, size + 1):
        until = part * known.count // size
        while at + 1 < len(known.steps) and known.steps[at + 1][0] < until:
            at += 1
        found.append(known.steps[at][1])
    return tuple(found)


#: Maximum number of a set's trials in a description; an export marks every trial of the set.
MOST = 100
_ENDED = "status = 'SUCCEEDED' AND final_data IS NOT NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoTrial:
    """A trial of a Pareto set."""

    trial_id: str
    #: Objective → its number in the final result.
    values: Mapping[str, float]
    #: Whether it satisfies all constraints; if one does not, none of the set does.
    is_feasible: bool
    #: The trial's parameters; NaN and infinity become null.
    parameters: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoSet:
    #: Number of trials in the set.
    size: int
    #: At most `MOST` of them, the best of the first objective first.
    trials: tuple[ParetoTrial, ...]

    @property
    def is_feasible(self) -> bool:
        """Whether the set satisfies the constraints; if not, no trial does."""
        return all(trial.is_feasible for trial in self.trials[:1])


@dataclass(slots=True)
class _Known:
    """The set of the trials of one database that ended up to some end order."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    goals: Goals | None = None
    #: Number of these trials and sum of their end orders: a change of the past changes them.
    past: tuple[int, int] = (0, 0)
    #: The last end order.
    last: int = 0
    front: list[tuple[str, Worth]] = field(default_factory=list)


def load_pareto_set(connection: sqlite3.Connection, config: Mapping[str, Any]) -> ParetoSet | None:
    """The set of the experiment; `config`: its own, canonical. None: it has no objectives."""
    goals = stored_config.goals(config)
    if goals is None:
        return None
    front = _front(connection, goals)
    query = "SELECT id, record FROM trials WHERE id IN (SELECT value FROM json_each(?))"
    rows = connection.execute(query, (json.dumps([trial_id for trial_id, _ in front[:MOST]]),))
    parameters = {id_: json.loads(record, parse_constant=lambda _: None)["parameters"] for id_, record in rows}
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


def pareto_members(connection: sqlite3.Connection) -> list[str] | None:
    """The ids of the trials in the set; None: the experiment has no objectives."""
    (config,) = connection.execute("SELECT config FROM experiment").fetchone()
    goals = stored_config.goals(json.loads(config))
    return None if goals is None else [trial_id for trial_id, _ in _front(connection, goals)]


def _front(connection: sqlite3.Connection, goals: Goals) -> list[tuple[str, Worth]]:
    (_, _, path) = connection.execute("PRAGMA database_list").fetchone()
    known = _known(path) if path else _Known()
    with known.lock:
        if known.goals != goals or _past(connection, _ENDED, known.last) != known.past:
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


def _past(connection: sqlite3.Connection, which: str, until: int) -> tuple[int, int]:
    """Number of results until that end order and sum of their end orders: a change of the past changes them."""
    query = f"SELECT count(*), coalesce(sum(end_order), 0) FROM trials WHERE {which} AND end_order <= ?"
    count, total = connection.execute(query, (until,)).fetchone()
    return count, total


def _take(known: _Known, goals: Goals, rows: Sequence[tuple[str, str, int]]) -> None:
    """`rows`: id, final result and end order of trials that ended later than the known ones."""
    if not rows:
        return
    worths = ((trial_id, goals.judge(json.loads(text))) for trial_id, text, _ in rows)
    known.front = extended_set(known.front, [(id_, worth) for id_, worth in worths if worth is not None])
    known.past = (known.past[0] + len(rows), known.past[1] + sum(end for *_, end in rows))
    known.last = rows[-1][2]
