"""Intermediate results as numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nni_manager.analysis.flattened import parsed
from nni_manager.analysis.query import DEFAULT_KEY
from nni_manager.store.experiment.trial_columns import Row


def key_values(rows: Sequence[Row], key: str) -> list[float]:
    """The number of each result under `key`; NaN: it has none. `rows`: as `trial_columns.intermediates`."""
    if key == DEFAULT_KEY:
        return [math.nan if value is None else value for _, value, _ in rows]
    return [_entry(result, key) for result in parsed([data for *_, data in rows])]


def _entry(result: Any, key: str) -> float:
    value: Any = result.get(key) if isinstance(result, dict) else None
    if type(value) not in (int, float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
