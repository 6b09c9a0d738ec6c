"""Small curves of the table: the intermediate results of running trials."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nni_manager.analysis.asked import Asked
from nni_manager.analysis.curve_points import key_values
from nni_manager.analysis.json_text import short
from nni_manager.store.experiment import trial_columns

MOST_POINTS = 40


def sparks(asked: Asked, ids: Sequence[str]) -> dict[str, list[float]]:
    """Trial id → at most `MOST_POINTS` finite values, evenly spread, the latest last."""
    return {id: _spark(asked, id) for id in ids}


def _spark(asked: Asked, id: str) -> list[float]:
    values = key_values(trial_columns.intermediates(asked.connection, id), asked.query.key)
    finite = [value for value in values if math.isfinite(value)]
    step = max(1, -(-len(finite) // MOST_POINTS))
    return [short(value) for value in finite[::-1][::step][::-1]]
