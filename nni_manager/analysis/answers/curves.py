"""``curves``: the intermediate results of the best, running and selected trials, and a band of the others.

`sparks` are the small curves of the table.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nni_manager.analysis import selection
from nni_manager.analysis.columns.column import Floats, Integers, number_of
from nni_manager.analysis.columns.trial_set import STATUSES
from nni_manager.analysis.flattened import parsed
from nni_manager.analysis.json_text import numbers, plain, short
from nni_manager.analysis.query import DEFAULT_KEY
from nni_manager.analysis.selection import Asked, sample, selected
from nni_manager.domain.metrics import default_number
from nni_manager.store.experiment import trial_columns
from nni_manager.store.experiment.trial_columns import Row

MOST_POINTS = 200
_MOST_RUNNING = 50
#: Number of trials in the band.
_BAND = 400
#: Number of curves of finished trials kept in memory.
_MOST_KEPT = 2000


class Curve(NamedTuple):
    #: From 0, rising.
    steps: Integers
    stored_ms: Floats
    values: Floats


def answer(asked: Asked) -> dict[str, Any]:
    trials = asked.trials
    mask = selection.chosen(trials, asked.query)
    why = _drawn(asked, np.flatnonzero(mask))
    others = np.flatnonzero(mask & (trials["steps"] > 0) & ~selection.flags(trials, list(why)))
    band = sample(trials, others, _BAND) if asked.query.x == "number" else others[:0]
    read = curves_of(asked, [*why, *band.tolist()])
    chosen = {position: read[position] for position in why}
    curves = [_curve(asked, position, curve, why[position]) for position, curve in chosen.items() if len(curve.values)]
    not_numbers = sum(int((~np.isfinite(curve.values)).sum()) for curve in chosen.values())
    return {
        "curves": curves,
        "band": _band([read[position] for position in band.tolist()]),
        "sample": min(_BAND, len(others)),
        "shown": len(curves),
        "of": int((mask & ((trials["steps"] > 0) | ~np.isin(trials["status"], selection.OPEN))).sum()),
        "notNumbers": not_numbers,
        "clipped": 0,
    }


def curves_of(asked: Asked, positions: Sequence[int]) -> dict[int, Curve]:
    """Position → the current attempt's intermediate results; those of ended trials are kept."""
    trials, key = asked.trials, asked.query.key
    kept: OrderedDict[tuple[int, str], Curve] = trials.kept.setdefault("curves", OrderedDict())
    found = {position: kept[position, key] for position in positions if (position, key) in kept}
    found |= _read(asked, [position for position in positions if position not in found])
    for position, curve in found.items():
        if int(trials["status"][position]) not in selection.OPEN:
            kept[position, key] = curve
    while len(kept) > _MOST_KEPT:
        kept.popitem(last=False)
    return found


def _drawn(asked: Asked, positions: Integers) -> dict[int, str]:
    """Position → why its curve is drawn, the best last."""
    trials = asked.trials
    order = selection.ranks(trials, asked.query).order
    best = order[np.isin(order, positions)][: asked.query.top]
    running = positions[np.isin(trials["status"][positions], selection.OPEN) & (trials["steps"][positions] > 0)]
    why = dict.fromkeys(running[-_MOST_RUNNING:].tolist(), "running")
    why |= dict.fromkeys(best[::-1].tolist(), "top")
    return why | dict.fromkeys(selected(asked), "selected")


def _read(asked: Asked, positions: Sequence[int]) -> dict[int, Curve]:
    """Read all curves at once, because one by one, the hundreds of a band would take twice as long."""
    key, numbers = asked.query.key, asked.trials["number"][list(positions)].tolist()
    rows = trial_columns.intermediates_of(asked.connection, numbers, data=key != DEFAULT_KEY) if numbers else []
    owners, steps, moments, results = zip(*rows, strict=True) if rows else ((), (), (), ())
    values = results if key == DEFAULT_KEY else _entries(asked, results)
    table, counted = np.array((moments, values), np.float64), np.array(steps, np.int64)  # None is NaN
    starts = np.searchsorted(owners, numbers, side="left").tolist()
    ends = np.searchsorted(owners, numbers, side="right").tolist()
    places = zip(positions, starts, ends, strict=True)
    return {position: Curve(counted[start:end].copy(), *table[:, start:end].copy()) for position, start, end in places}


def _curve(asked: Asked, position: int, curve: Curve, why: str) -> dict[str, Any]:
    trials = asked.trials
    places = _few(curve.values)
    return {
        "number": int(trials["number"][position]),
        "id": trials.ids[position],
        "status": STATUSES[int(trials["status"][position])],
        "why": why,
        "rank": int(selection.ranks(trials, asked.query).rank[position]) or None,
        "x": _x(asked, position, curve, places),
        "y": [short(value) if np.isfinite(value) else None for value in curve.values[places].tolist()],
    }


def _x(asked: Asked, position: int, curve: Curve, places: Integers) -> list[Any]:
    """Steps from 0, or milliseconds since the trial's start or the epoch."""
    if asked.query.x == "number":
        return plain(curve.steps[places])
    since = float(asked.trials["started"][position]) if asked.query.x == "elapsed" else 0.0
    return [int(moment) for moment in (curve.stored_ms[places] - (0.0 if np.isnan(since) else since)).tolist()]


def _few(values: Floats) -> Integers:
    """At most `MOST_POINTS` places: the lowest and highest value of each bucket, and the ends."""
    if len(values) <= MOST_POINTS:
        return np.arange(len(values))
    buckets = np.array_split(np.arange(len(values)), MOST_POINTS // 2 - 1)
    chosen = {0, len(values) - 1}
    for bucket in buckets:
        finite = bucket[np.isfinite(values[bucket])]
        if len(finite):
            chosen |= {int(finite[values[finite].argmin()]), int(finite[values[finite].argmax()])}
    return np.array(sorted(chosen))


def _band(curves: Sequence[Curve]) -> dict[str, Any] | None:
    """Quantiles of these values by step; null without any."""
    known = np.unique(np.concatenate([curve.steps for curve in curves])) if curves else np.array([], np.int64)
    if not len(known):
        return None
    steps = known[np.unique(np.linspace(0, len(known) - 1, min(len(known), MOST_POINTS)).astype(np.int64))]
    few = np.full((len(curves), len(steps)), np.nan)
    for row, curve in zip(few, curves, strict=True):
        _, places, columns = np.intersect1d(curve.steps, steps, assume_unique=True, return_indices=True)
        values = curve.values[places]
        row[columns] = np.where(np.isfinite(values), values, np.nan)
    filled = np.flatnonzero(~np.isnan(few).all(axis=0))
    if not len(filled):
        return None
    few = few[:, filled]
    quantile = np.nanquantile if np.isnan(few).any() else np.quantile  # many times as fast
    low, middle, high = quantile(few, (0.1, 0.5, 0.9), axis=0)
    return {
        "x": plain(steps[filled]),
        "p10": numbers(low),
        "p50": numbers(middle),
        "p90": numbers(high),
        "count": plain((~np.isnan(few)).sum(axis=0)),
    }


_SPARK_POINTS = 40


def sparks(asked: Asked, ids: Sequence[str]) -> dict[str, list[float]]:
    """Trial id → at most `MOST_POINTS` finite values, evenly spread, the latest last."""
    return {id: _spark(asked, id) for id in ids}


def _spark(asked: Asked, id: str) -> list[float]:
    values = key_values(asked, trial_columns.intermediates(asked.connection, id))
    finite = [value for value in values if math.isfinite(value)]
    step = max(1, -(-len(finite) // _SPARK_POINTS))
    return [short(value) for value in finite[::-1][::step][::-1]]


def key_values(asked: Asked, rows: Sequence[Row]) -> list[float]:
    """The number of each result under the query's key, or NaN. `rows`: see `trial_columns.intermediates`."""
    if asked.query.key == DEFAULT_KEY:
        return [math.nan if value is None else value for _, value, _ in rows]
    return _entries(asked, [data for *_, data in rows])


def _entries(asked: Asked, results: Sequence[str]) -> list[float]:
    """The entries of results. Plain numbers count for the experiment's key: they need not name the objective."""
    key, is_usual = asked.query.key, asked.query.key == asked.trials.usual_key
    return [_entry(result, key, is_usual=is_usual) for result in parsed(results)]


def _entry(result: Any, key: str, *, is_usual: bool) -> float:
    if isinstance(result, dict) and key in result:
        return number_of(result[key])
    number = default_number(result) if is_usual else None
    return math.nan if number is None else number
