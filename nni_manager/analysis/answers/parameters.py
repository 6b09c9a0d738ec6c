"""The values of parameters and the results: ``effect`` of single parameters, ``pair`` of two of them.

``parallel``: parallel coordinates of the best trials and a sample of the others; ``importance``: how much each
parameter explains of what makes a trial one of the best.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from nni_manager.analysis import axes, importance, selection
from nni_manager.analysis.axes import Axis
from nni_manager.analysis.columns.column import Integers
from nni_manager.analysis.drawn import Drawn, drawn, flags, sample, selected
from nni_manager.analysis.json_text import numbers, plain, short
from nni_manager.analysis.selection import Asked
from nni_manager.domain.errors import InvalidInput

#: Parameters without a named one.
_MOST_PARAMETERS = 6
_MOST_POINTS = 200


def effect(asked: Asked) -> dict[str, Any]:
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


def pair(asked: Asked) -> dict[str, Any]:
    """The cells that are not empty; ``rank`` is that of their median among the cells, from 0, the worst, to 1."""
    found = drawn(asked, provisional=False)
    first, second = _axes(asked)
    i, j = first.bin_of(found.positions), second.bin_of(found.positions)
    both = (i >= 0) & (j >= 0)
    places = i[both] * max(1, second.bins) + j[both]
    cells = [
        _cell(asked, found.values, cell, positions, second.bins)
        for cell, positions in groups(places, found.positions[both])
    ]
    _rank(asked, cells)
    a, b = (
        {**axis.described(), "edges": numbers(axis.edges) if axis.choices is None else None} for axis in (first, second)
    )
    return {"a": a, "b": b, "cells": cells, **found.counts(int(both.sum()))}


def _axes(asked: Asked) -> tuple[Axis, Axis]:
    """The named parameters; where names are missing, those that matter most."""
    trials, query = asked.trials, asked.query
    known = axes.names(trials, importance.current(asked).values, 3) if not (query.a and query.b) else []
    free = [name for name in known if name not in (query.a, query.b)]
    names = [given or (free.pop(0) if free else "") for given in (query.a, query.b)]
    if "" in names:
        raise InvalidInput(f"{'ab'[names.index('')]}: is missing, and there are not two parameters; give a name")
    return axes.axis(trials, "a", names[0]), axes.axis(trials, "b", names[1])


def _cell(asked: Asked, values: Any, cell: int, positions: Integers, width: int) -> dict[str, Any]:
    own = values[positions]
    at = int(np.argmax(own) if selection.maximizes(asked.trials, asked.query) else np.argmin(own))
    return {
        "i": cell // max(1, width),
        "j": cell % max(1, width),
        "count": len(own),
        "median": short(float(np.median(own))),
        "best": short(float(own[at])),
        "number": int(asked.trials["number"][positions[at]]),
    }


def _rank(asked: Asked, cells: list[dict[str, Any]]) -> None:
    order = sorted(
        cells, key=lambda cell: float(cell["median"]), reverse=not selection.maximizes(asked.trials, asked.query)
    )
    for place, cell in enumerate(order):
        cell["rank"] = round(place / max(1, len(cells) - 1), 4)


_MOST_AXES = 12
MOST_LINES = 1500


def parallel(asked: Asked) -> dict[str, Any]:
    trials, query = asked.trials, asked.query
    found = drawn(asked, provisional=False)
    ranks = selection.ranks(trials, query)
    known = importance.current(asked)
    names = list(query.axes) or axes.names(trials, known.values, _MOST_AXES - 1)
    shown = [axes.axis(trials, "axes", name) for name in names[: _MOST_AXES - 1]]
    shown.append(axes.result_axis(np.where(selection.comparable(trials, query.key), found.values, np.nan)))
    always = flags(trials, ranks.order[: query.top], selected(asked))
    lines = sample(trials, found.positions, MOST_LINES, always)
    lines = lines[np.argsort(-ranks.rank[lines], kind="stable")]
    return {
        "axes": [axis.described() for axis in shown],
        "lines": {
            "number": plain(trials["number"][lines]),
            "id": [trials.ids[position] for position in lines.tolist()],
            "score": [round(score, 4) for score in ranks.score[lines].tolist()],
            "values": [numbers(axis.values[lines]) for axis in shown],
        },
        "histograms": [_histogram(axis, found.positions) for axis in shown],
        "importanceState": known.state,
        **found.counts(len(lines)),
    }


def _histogram(axis: Axis, positions: Integers) -> dict[str, Any]:
    bins = axis.bin_of(positions)
    return {"axis": axis.name, "counts": plain(np.bincount(bins[bins >= 0], minlength=axis.bins))}


def importance_of_each(asked: Asked) -> dict[str, Any]:
    found = importance.current(asked)
    return {
        "state": found.state,
        "method": importance.METHOD,
        "sample": found.sample,
        "of": found.completed,
        "sentence": found.sentence or _sentence(found),
        "importances": [{"name": name, "value": short(share)} for name, share in found.values],
    }


def _sentence(found: importance.Importance) -> str:
    which = (
        f"{found.sample} of {found.completed} trials" if found.sample < found.completed else f"{found.sample} trials"
    )
    return f"{importance.METHOD} of {which} with a result; parameters that some of them lack are left out"


def groups(bins: Integers, positions: Integers) -> Iterator[tuple[int, Integers]]:
    """(bin, its positions) of the bins that are not empty, in their order; bin -1 is none."""
    order = np.argsort(bins, kind="stable")
    ordered = bins[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-2))
    for start, end in pairwise([*starts.tolist(), len(ordered)]):
        if ordered[start] >= 0:
            yield int(ordered[start]), positions[order[start:end]]
