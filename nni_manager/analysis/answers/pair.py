"""``pair``: the results by the values of two parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from nni_manager.analysis import axes, importance, selection
from nni_manager.analysis.asked import Asked
from nni_manager.analysis.axes import Axis
from nni_manager.analysis.bins import groups
from nni_manager.analysis.columns.growing import Integers
from nni_manager.analysis.drawn import drawn
from nni_manager.analysis.json_text import numbers, short
from nni_manager.domain.errors import InvalidInput


def answer(asked: Asked) -> dict[str, Any]:
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
    return {"a": _described(first), "b": _described(second), "cells": cells, **found.counts(int(both.sum()))}


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


def _described(axis: Axis) -> dict[str, Any]:
    return {**axis.described(), "edges": numbers(axis.edges) if axis.choices is None else None}
