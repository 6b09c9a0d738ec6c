"""``parallel``: parallel coordinates, the best trials and a sample of the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from nni_manager.analysis import axes, importance, selection
from nni_manager.analysis.asked import Asked
from nni_manager.analysis.axes import Axis
from nni_manager.analysis.columns.growing import Integers
from nni_manager.analysis.drawn import drawn, flags, sample, selected
from nni_manager.analysis.json_text import numbers, plain

_MOST_AXES = 12
MOST_LINES = 1500


def answer(asked: Asked) -> dict[str, Any]:
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
            "values": [_values(axis, lines) for axis in shown],
        },
        "histograms": [_histogram(axis, found.positions) for axis in shown],
        "importanceState": known.state,
        **found.counts(len(lines)),
    }


def _values(axis: Axis, positions: Integers) -> list[float | None]:
    return numbers(axis.values[positions])


def _histogram(axis: Axis, positions: Integers) -> dict[str, Any]:
    bins = axis.bin_of(positions)
    return {"axis": axis.name, "counts": plain(np.bincount(bins[bins >= 0], minlength=axis.bins))}
