"""``effect``: the results by the values of single parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from nni_manager.analysis import axes, importance, selection
from nni_manager.analysis.asked import Asked
from nni_manager.analysis.axes import Axis
from nni_manager.analysis.bins import groups
from nni_manager.analysis.drawn import Drawn, drawn, flags, selected
from nni_manager.analysis.json_text import numbers, plain, short

#: Parameters without a named one.
_MOST_PARAMETERS = 6
_MOST_POINTS = 200


def answer(asked: Asked) -> dict[str, Any]:
    trials, query = asked.trials, asked.query
    found, known = drawn(asked, provisional=False), importance.current(asked)
    names = [query.parameter] if query.parameter else axes.names(trials, known.values, _MOST_PARAMETERS)
    shares = dict(known.values)
    told = [_parameter(asked, axes.axis(trials, "parameter", name), found, shares.get(name)) for name in names]
    return {"parameters": told, "importanceState": known.state, **found.counts(len(found.positions))}


def _parameter(asked: Asked, axis: Axis, found: Drawn, share: float | None) -> dict[str, Any]:
    kind = "number" if axis.choices is None else "choice"
    head = {"name": axis.name, "kind": kind, "log": axis.log, "importance": share}
    return {**head, "bins": _bins(asked, axis, found), "points": _points(asked, axis, found)}


def _bins(asked: Asked, axis: Axis, found: Drawn) -> list[dict[str, Any]]:
    """The bins that are not empty."""
    limits, is_better_high = axis.bin_limits(), selection.maximizes(asked.trials, asked.query)
    told = []
    for bin, positions in groups(axis.bin_of(found.positions), found.positions):
        values = found.values[positions]
        low, middle, high = np.quantile(values, (0.1, 0.5, 0.9))
        best = float(values.max() if is_better_high else values.min())
        quantiles = {"median": short(float(middle)), "p10": short(float(low)), "p90": short(float(high))}
        told.append({**limits[bin], "count": len(values), **quantiles, "best": short(best)})
    return told


def _points(asked: Asked, axis: Axis, found: Drawn) -> dict[str, Any]:
    """The best hundredth of the trials, at least the top ones, and the selected ones."""
    trials, query = asked.trials, asked.query
    order = selection.ranks(trials, query).order
    chosen = order[flags(trials, found.positions)[order]]
    best = chosen[: min(_MOST_POINTS, max(query.top, len(chosen) // 100))]
    drawn = np.flatnonzero(flags(trials, best, selected(asked)) & np.isfinite(axis.values) & np.isfinite(found.values))
    return {
        "number": plain(trials["number"][drawn]),
        "x": numbers(axis.values[drawn]),
        "value": numbers(found.values[drawn]),
    }
