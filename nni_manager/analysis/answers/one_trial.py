"""``trial``: the place of one trial among the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from nni_manager.analysis import selection
from nni_manager.analysis.asked import Asked
from nni_manager.analysis.attempt_table import places
from nni_manager.analysis.json_text import short
from nni_manager.domain.errors import InvalidInput, NotFound


def answer(asked: Asked) -> dict[str, Any]:
    trials, number = asked.trials, asked.query.number
    if number is None:
        raise InvalidInput("number: is missing; give the number of a trial")
    position = trials.position(number)
    if position is None:
        raise NotFound(f"there is no trial with the number {number}")
    ranks = selection.ranks(trials, asked.query)
    return {
        "number": number,
        "id": trials.ids[position],
        "rank": int(ranks.rank[position]) or None,
        "of": len(ranks.order),
        "percentiles": _percentiles(asked, position),
        **_neighbours(asked, position),
    }


def _percentiles(asked: Asked, position: int) -> dict[str, float]:
    """Parameter → share of the trials whose number is lower, equal ones counted half."""
    found = {}
    for name, column in asked.trials.parameters.columns.items():
        own, others = float(column.numbers[position]), column.numbers[~np.isnan(column.numbers)]
        if not np.isnan(own):
            found[name] = short(float((others < own).mean() + (others == own).mean() / 2))
    return found


def _neighbours(asked: Asked, position: int) -> dict[str, int | None]:
    """The numbers of the trials before and after it, in the order of the query; null: it is the first, or the last."""
    mask = selection.chosen(asked.trials, asked.query)
    order = selection.in_order(asked.trials, asked.query, mask, asked.now_ms, lambda: places(asked))
    at = np.flatnonzero(np.asarray(order, np.int64) == position)
    if not len(at):
        return {"previous": None, "next": None}
    before, after = int(at[0]) - 1, int(at[0]) + 1
    numbers = asked.trials["number"]
    return {
        "previous": int(numbers[order[before]]) if before >= 0 else None,
        "next": int(numbers[order[after]]) if after < len(order) else None,
    }
