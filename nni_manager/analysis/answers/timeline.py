"""``timeline``: times and places of attempts, and their concurrency."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from nni_manager.analysis import selection
from nni_manager.analysis.columns.column import Floats, Integers
from nni_manager.analysis.columns.trial_set import STATUSES, TrialSet
from nni_manager.analysis.json_text import plain
from nni_manager.analysis.selection import Asked
from nni_manager.store.experiment import trial_columns
from nni_manager.store.experiment.trial_columns import Row

MOST_BARS = 500
_MOMENTS = 200


def answer(asked: Asked) -> dict[str, Any]:
    trials, query = asked.trials, asked.query
    attempts = _attempts(asked)
    ended = np.where(np.isnan(attempts.ended), _open_end(asked, attempts), attempts.ended)
    mask = selection.chosen(trials, query)[attempts.positions]
    low = -np.inf if query.start is None else query.start
    high = np.inf if query.end is None else query.end
    visible = np.flatnonzero(mask & (ended >= low) & (attempts.started <= high))  # of one that has not started: NaN
    visible = visible[np.argsort(attempts.started[visible], kind="stable")]
    bars = visible[-MOST_BARS:]
    names, lanes = _lanes(attempts, ended, bars.tolist())
    return {
        "lanes": names,
        "bars": [_bar(asked, attempts, ended, row, lane) for row, lane in zip(bars.tolist(), lanes, strict=True)],
        "concurrency": _concurrency(attempts.started[visible], ended[visible], low, high),
        "shown": len(bars),
        "of": len(visible),
    }


def _open_end(asked: Asked, attempts: AttemptTable) -> Floats:
    """The end of attempts without a stored end: now for an open trial, else the trial's end, else the start."""
    ended = asked.trials["ended"][attempts.positions]
    is_open = np.isin(asked.trials["status"][attempts.positions], selection.OPEN)
    found: Floats = np.where(is_open, asked.now_ms, np.where(np.isnan(ended), attempts.started, ended))
    return np.maximum(found, attempts.started)


def _lanes(attempts: AttemptTable, ended: Floats, rows: list[int]) -> tuple[list[str], list[int]]:
    """The names of the lanes, and the lane of each bar. Simultaneous attempts on one place get separate lanes."""
    busy: dict[str, list[tuple[float, int]]] = defaultdict(list)
    slots: dict[str, int] = defaultdict(int)
    taken: list[tuple[str, int]] = []
    for row in rows:
        place = attempts.places[int(attempts.place[row])]
        if busy[place] and busy[place][0][0] <= attempts.started[row]:
            slot = heapq.heappop(busy[place])[1]
        else:
            slots[place] += 1
            slot = slots[place]
        heapq.heappush(busy[place], (float(ended[row]), slot))
        taken.append((place, slot))
    lanes = [(place, slot) for place in slots for slot in range(1, slots[place] + 1)]
    index = {lane: number for number, lane in enumerate(lanes)}
    names = [place if slots[place] == 1 else f"{place} · {slot}" for place, slot in lanes]
    return names, [index[lane] for lane in taken]


def _bar(asked: Asked, attempts: AttemptTable, ended: Floats, row: int, lane: int) -> dict[str, Any]:
    trials, position = asked.trials, int(attempts.positions[row])
    return {
        "number": int(trials["number"][position]),
        "id": trials.ids[position],
        "lane": lane,
        "startMs": int(attempts.started[row]),
        "endMs": int(ended[row]),
        "status": STATUSES[int(trials["status"][position])],
        "attempt": int(attempts.numbers[row]),
    }


def _concurrency(started: Floats, ended: Floats, low: float, high: float) -> dict[str, Any]:
    """The maximum concurrency in each span that begins at ``t``."""
    if not len(started):
        return {"t": [], "running": []}
    moments = np.concatenate((ended, started))
    order = np.argsort(moments, kind="stable")  # at the same time, ends come before starts
    running = np.cumsum(np.where(order < len(ended), -1, 1))
    moments = moments[order]
    begin, end = max(low, float(moments[0])), min(high, float(moments[-1]))
    edges = np.unique(np.linspace(begin, end, _MOMENTS).astype(np.int64)) if end > begin else np.array([int(begin)])
    places = np.searchsorted(moments, edges, side="right")
    before = np.where(places > 0, running[places - 1], 0)
    spans = zip(places.tolist(), [*places[1:].tolist(), len(moments)], before.tolist(), strict=True)
    most = [max(known, int(running[first:last].max(initial=0))) for first, last, known in spans]
    return {"t": plain(edges), "running": most}


#: Changed trials beyond which all attempts are read.
_MOST_CHANGED = 5000


class AttemptTable:
    """A row per attempt with times and place. Only rows of changed trials are read again."""

    def __init__(self) -> None:
        #: Of the trials.
        self.positions: Integers = np.empty(0, np.int64)
        self.numbers: Integers = np.empty(0, np.int64)
        #: Milliseconds since the epoch; NaN: not yet.
        self.started: Floats = np.empty(0)
        self.ended: Floats = np.empty(0)
        #: Index in `places`.
        self.place: Integers = np.empty(0, np.int64)
        self.places: list[str] = []
        self._index: dict[str, int] = {}

    def replace(self, trials: TrialSet, changed: Sequence[int], rows: Sequence[Row]) -> None:
        """Drop the rows of the trials at the positions `changed`, and add `rows`."""
        kept = ~np.isin(self.positions, list(changed))
        numbers, attempts, places, started, ended = zip(*rows, strict=True) if rows else ((),) * 5
        self.positions = np.concatenate((self.positions[kept], trials.positions(numbers)))
        self.numbers = np.concatenate((self.numbers[kept], np.array(attempts, np.int64)))
        self.started = np.concatenate((self.started[kept], np.array(started, np.float64)))
        self.ended = np.concatenate((self.ended[kept], np.array(ended, np.float64)))
        codes = [self._index.setdefault(place, len(self._index)) for place in places]
        self.place = np.concatenate((self.place[kept], np.array(codes, np.int64)))
        self.places = list(self._index)


def _attempts(asked: Asked) -> AttemptTable:
    trials, connection = asked.trials, asked.connection
    table: AttemptTable | None = trials.kept.get("attempts")
    changed, trials.changed = trials.changed, set()
    if table is None or len(changed) > _MOST_CHANGED:
        table = trials.kept["attempts"] = AttemptTable()
        table.replace(trials, (), trial_columns.all_attempts(connection))
    elif changed:
        ids = [trials.ids[position] for position in changed]
        table.replace(trials, tuple(changed), trial_columns.attempts_of(connection, ids))
    return table


def places(asked: Asked) -> list[str]:
    """The place, or else the service, of each trial's latest attempt, or empty."""
    table = _attempts(asked)
    codes = np.full(len(asked.trials), -1, np.int64)
    order = np.argsort(table.numbers, kind="stable")  # the latest is written last
    codes[table.positions[order]] = table.place[order]
    names = [*table.places, ""]
    return [names[code] for code in codes.tolist()]
