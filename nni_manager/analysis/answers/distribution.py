"""``distribution``: the results as a histogram, quantiles, and the share of trials up to each value."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from nni_manager.analysis.asked import Asked
from nni_manager.analysis.drawn import drawn
from nni_manager.analysis.json_text import numbers, short

_BINS = 40
_EDF_POINTS = 200
_QUANTILES = {"p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}


def answer(asked: Asked) -> dict[str, Any]:
    found = drawn(asked, provisional=False)
    values = np.sort(found.values[found.positions])
    counts = found.counts(len(values))
    if not len(values):
        return {"bins": [], "quantiles": dict.fromkeys(_QUANTILES), "edf": {"x": [], "share": []}, **counts}
    return {
        "bins": _bins(values),
        "quantiles": {name: short(float(np.quantile(values, share))) for name, share in _QUANTILES.items()},
        "edf": _edf(values),
        **counts,
    }


def _bins(values: Any) -> list[dict[str, Any]]:
    if values[0] == values[-1]:
        return [{"low": short(float(values[0])), "high": short(float(values[0])), "count": len(values)}]
    counts, edges = np.histogram(values, bins=min(_BINS, max(5, len(values))))
    told = zip(pairwise(numbers(edges)), counts.tolist(), strict=True)
    return [{"low": low, "high": high, "count": count} for (low, high), count in told]


def _edf(values: Any) -> dict[str, Any]:
    """The share of trials whose result is at most x, at places of equal share."""
    places = np.unique(np.linspace(0, len(values) - 1, min(len(values), _EDF_POINTS)).astype(np.int64))
    return {"x": numbers(values[places]), "share": [round((place + 1) / len(values), 6) for place in places.tolist()]}
