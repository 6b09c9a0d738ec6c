"""Learning curves: the intermediate results of a trial by step.

The step of a result is the reported one, or its number in the attempt. If the current attempt reports steps, the curve
begins with results of earlier attempts below its first step: it continues them from a checkpoint. Of two results with
the same step the later one counts.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple


class Point(NamedTuple):
    """One result of a curve."""

    #: From 0.
    step: int
    attempt: int
    stored_ms: int
    #: Its number; None: NaN, or not a number.
    value: float | None
    #: JSON as reported.
    data: str


def with_steps(connection: sqlite3.Connection, trial_ids: Collection[str]) -> list[str]:
    """The trials among these that reported steps; usually none."""
    rows = connection.execute(
        "SELECT DISTINCT trial_id FROM metrics INDEXED BY metrics_with_step"
        " WHERE step IS NOT NULL AND trial_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(trial_ids)),),
    )
    return [trial_id for (trial_id,) in rows]


def load(connection: sqlite3.Connection, trial_ids: Collection[str]) -> Mapping[str, Sequence[Point]]:
    """Trial → its curve, ordered by step."""
    rows = connection.execute(
        "SELECT t.id, t.attempt, m.step, m.sequence, m.attempt, m.stored_ms, m.value, m.data FROM trials t"
        " JOIN metrics m ON m.trial_id = t.id AND m.attempt <= t.attempt WHERE m.type = 'PERIODICAL'"
        " AND t.id IN (SELECT value FROM json_each(?)) ORDER BY t.id, m.attempt, m.sequence",
        (json.dumps(list(trial_ids)),),
    )
    return {trial_id: _curve(list(group)) for trial_id, group in groupby(rows, key=lambda row: str(row[0]))}


def _curve(rows: Sequence[tuple[str, int, int | None, int, int, int, float | None, str]]) -> list[Point]:
    points: dict[int, Point] = {}
    for attempt, group in groupby(rows, key=lambda row: row[4]):
        results = list(group)
        steps = [step for _, _, step, *_ in results if step is not None]
        first = min(steps, default=0)  # an attempt without steps began from the start
        points = {step: point for step, point in points.items() if step < first}
        for _, current, step, sequence, _, stored_ms, value, data in results:
            if step is not None or attempt == current:
                place = sequence if step is None else step
                points[place] = Point(place, attempt, stored_ms, value, data)
    return [points[step] for step in sorted(points)]
