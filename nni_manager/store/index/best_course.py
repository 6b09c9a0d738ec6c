"""How the best result of an experiment came about, in few numbers: lists draw it.

Open experiments are asked for at every change of a list, so what is known of the results so far is kept in memory, for
those that were asked for last, and only results that came since are read.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

#: Most numbers of a course.
MOST = 40
_ENDED = "status = 'SUCCEEDED' AND final_value IS NOT NULL AND abs(final_value) < 9e999"


@dataclass(slots=True)
class _Known:
    lock: threading.Lock = field(default_factory=threading.Lock)
    #: The end order of the last result that was read, and the sum of those of all.
    last: int = 0
    total: int = 0
    count: int = 0
    #: (number of the result, its value) of each that was better than all before.
    steps: list[tuple[int, float]] = field(default_factory=list)

    def add(self, value: float, *, maximizes: bool) -> None:
        best = self.steps[-1][1] if self.steps else None
        if best is None or (value > best if maximizes else value < best):
            self.steps.append((self.count, value))
        self.count += 1


def load(connection: sqlite3.Connection, *, maximizes: bool) -> tuple[float, ...]:
    """The best so far after each of at most `MOST` equal shares of the finite results, in the order of their ends."""
    (_, _, path) = connection.execute("PRAGMA database_list").fetchone()
    known = _known(path, maximizes) if path else _Known()
    with known.lock:
        _follow(connection, known, maximizes=maximizes)
        return _sampled(known)


def of(values: Iterable[float], *, maximizes: bool) -> tuple[float, ...]:
    """The same of finite results in the order of their ends."""
    known = _Known()
    for value in values:
        known.add(value, maximizes=maximizes)
    return _sampled(known)


@lru_cache(maxsize=64)
def _known(path: str, maximizes: bool) -> _Known:
    return _Known()


def _follow(connection: sqlite3.Connection, known: _Known, *, maximizes: bool) -> None:
    if _past(connection, known.last) != (known.count, known.total):  # one came late, or another database is there
        known.last, known.total, known.count, known.steps = 0, 0, 0, []
    query = f"SELECT final_value, end_order FROM trials WHERE {_ENDED} AND end_order > ? ORDER BY end_order"
    for value, end_order in connection.execute(query, (known.last,)):
        known.add(value, maximizes=maximizes)
        known.last, known.total = end_order, known.total + end_order


def _past(connection: sqlite3.Connection, until: int) -> tuple[int, int]:
    """Number of the results until that end order, and the sum of their end orders: a change of the past shows there."""
    query = f"SELECT count(*), coalesce(sum(end_order), 0) FROM trials WHERE {_ENDED} AND end_order <= ?"
    count, total = connection.execute(query, (until,)).fetchone()
    return count, total


def _sampled(known: _Known) -> tuple[float, ...]:
    size = min(MOST, known.count)
    found, at = [], 0
    for part in range(1, size + 1):
        until = part * known.count // size
        while at + 1 < len(known.steps) and known.steps[at + 1][0] < until:
            at += 1
        found.append(known.steps[at][1])
    return tuple(found)
