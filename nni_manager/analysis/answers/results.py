"""``results``: the result of each trial, the best so far, and the density of many trials.

``distribution``: the results as a histogram, quantiles, and the share of trials up to each value.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from nni_manager.analysis import selection
from nni_manager.analysis.answers.columns import limits
from nni_manager.analysis.columns.column import Floats, Integers, Mask
from nni_manager.analysis.columns.trial_set import STATUSES
from nni_manager.analysis.json_text import numbers, plain, short
from nni_manager.analysis.selection import Asked, drawn, flags, selected

#: Maximum number of points; of more trials, only notable ones are drawn, and the density of all.
MOST_POINTS = 4000
_BUCKETS = 200
_NEWEST = 200


def results(asked: Asked) -> dict[str, Any]:
    found = drawn(asked, provisional=True)
    x = x_of(asked)
    positions = _zoomed(asked, x, found.positions)
    positions = positions[np.argsort(x[positions], kind="stable")]
    improvements = _improvements(asked, found.values, positions)
    is_dense = len(positions) > MOST_POINTS
    shown = positions[_telling(asked, found.values, positions, improvements)[positions]] if is_dense else positions
    return {
        "direction": "maximize" if selection.maximizes(asked.trials, asked.query) else "minimize",
        "points": _points(asked, x, found.values, shown),
        "density": _density(asked, x[positions], found.values[positions]) if is_dense else None,
        "best": _best(asked, x, found.values, improvements),
        "limits": limits(found.values[positions], "low", "high"),
        **found.counts(len(shown)),
    }


def x_of(asked: Asked) -> Floats:
    """The place of each trial on the x axis: its number, or its end in milliseconds.

    The end (now, while it runs) counts from the creation of the first trial or from the epoch.
    """
    trials, kind = asked.trials, asked.query.x
    if kind == "number":
        return trials["number"].astype(np.float64)
    moments: Floats = np.where(np.isnan(trials["ended"]), asked.now_ms, trials["ended"])
    return moments - np.nanmin(trials["created"]) if kind == "elapsed" and len(trials) else moments


def _zoomed(asked: Asked, x: Floats, positions: Integers) -> Integers:
    low = -np.inf if asked.query.start is None else asked.query.start
    high = np.inf if asked.query.end is None else asked.query.end
    found: Integers = positions[(x[positions] >= low) & (x[positions] <= high)]
    return found


def _improvements(asked: Asked, values: Floats, positions: Integers) -> Integers:
    """The trials that were the best at their end, among comparable ones that satisfy all constraints."""
    can_be_best: Mask = selection.comparable(asked.trials, asked.query.key) & (selection.violation(asked.trials) == 0)
    final: Integers = positions[can_be_best[positions]]
    if not len(final):
        return final
    signed = -values[final] if selection.maximizes(asked.trials, asked.query) else values[final]
    best = np.minimum.accumulate(signed)
    found: Integers = final[np.concatenate(([True], best[1:] < best[:-1]))]
    return found


def _telling(asked: Asked, values: Floats, positions: Integers, improvements: Integers) -> Mask:
    """Best, improvements, extremes, newest, running and selected."""
    trials = asked.trials
    order = selection.ranks(trials, asked.query).order
    best = order[flags(trials, positions)[order]][: asked.query.top]
    extremes = positions[[int(np.argmin(values[positions])), int(np.argmax(values[positions]))]]
    running = positions[np.isin(trials["status"][positions], selection.OPEN)]
    newest = np.sort(positions)[-_NEWEST:]
    return flags(trials, best, improvements[-MOST_POINTS // 2 :], extremes, newest, running[-500:], selected(asked))


def _points(asked: Asked, x: Floats, values: Floats, positions: Integers) -> dict[str, Any]:
    trials = asked.trials
    return {
        "number": plain(trials["number"][positions]),
        "id": [trials.ids[position] for position in positions.tolist()],
        "x": numbers(x[positions]) if asked.query.x == "number" else [int(one) for one in x[positions].tolist()],
        "value": numbers(values[positions]),
        "status": [str(STATUSES[code]) for code in trials["status"][positions].tolist()],
        "provisional": plain(~trials["has_final"][positions]),
        "feasible": plain(selection.violation(trials)[positions] == 0),
    }


def _density(asked: Asked, x: Floats, values: Floats) -> dict[str, Any]:
    """Non-empty buckets along x, with count, lowest, highest and best value."""
    edges = np.linspace(x[0], x[-1], _BUCKETS + 1)
    starts = np.searchsorted(x, edges[:-1])
    bounds = np.append(starts, len(x))
    filled = np.flatnonzero(np.diff(bounds))
    low = np.minimum.reduceat(values, bounds[filled])
    high = np.maximum.reduceat(values, bounds[filled])
    return {
        "x": numbers((edges[filled] + edges[filled + 1]) / 2),
        "low": numbers(low),
        "high": numbers(high),
        "count": plain(np.diff(bounds)[filled]),
        "best": numbers(high if selection.maximizes(asked.trials, asked.query) else low),
    }


def _best(asked: Asked, x: Floats, values: Floats, improvements: Integers) -> dict[str, Any]:
    """The best so far, as steps."""
    few = improvements[-MOST_POINTS:]
    return {
        "number": plain(asked.trials["number"][few]),
        "id": [asked.trials.ids[position] for position in few.tolist()],
        "x": numbers(x[few]) if asked.query.x == "number" else [int(one) for one in x[few].tolist()],
        "value": numbers(values[few]),
    }


_BINS = 40
_EDF_POINTS = 200
_QUANTILES = {"p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}


def distribution(asked: Asked) -> dict[str, Any]:
    found = drawn(asked, provisional=False)
    values = np.sort(found.values[found.positions])
    counts = found.counts(len(values))
    if not len(values):
        empty: dict[str, Any] = {"bins": [], "logBins": [], "notPositive": 0, "edf": {"x": [], "share": []}}
        return {**empty, "quantiles": dict.fromkeys(_QUANTILES), **counts}
    positive = values[values > 0]
    return {
        "bins": _bins(values),
        "logBins": _bins(positive, log=True) if len(positive) else [],
        "notPositive": len(values) - len(positive),
        "quantiles": {name: short(float(np.quantile(values, share))) for name, share in _QUANTILES.items()},
        "edf": _edf(values),
        **counts,
    }


def _bins(values: Any, *, log: bool = False) -> list[dict[str, Any]]:
    """Bins of the same width; with `log`, of the same ratio."""
    if values[0] == values[-1]:
        return [{"low": short(float(values[0])), "high": short(float(values[0])), "count": len(values)}]
    space = np.geomspace if log else np.linspace
    bins = min(_BINS, max(5, len(values)))
    counts, edges = np.histogram(values, bins=space(values[0], values[-1], bins + 1))
    told = zip(pairwise(numbers(edges)), counts.tolist(), strict=True)
    return [{"low": low, "high": high, "count": count} for (low, high), count in told]


def _edf(values: Any) -> dict[str, Any]:
    """The share of trials whose result is at most x, at places of equal share."""
    places = np.unique(np.linspace(0, len(values) - 1, min(len(values), _EDF_POINTS)).astype(np.int64))
    return {"x": numbers(values[places]), "share": [round((place + 1) / len(values), 6) for place in places.tolist()]}
