"""``columns``: what the columns of an experiment hold: statuses, keys of results, parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from nni_manager.analysis.columns.column import Floats, ValueColumn
from nni_manager.analysis.columns.space_columns import SpaceColumn
from nni_manager.analysis.columns.trial_set import STATUSES, TrialSet
from nni_manager.analysis.json_text import short
from nni_manager.analysis.query import DEFAULT_KEY
from nni_manager.analysis.selection import Asked

#: Choices that are listed, the most frequent first where the search space has none.
MOST_CHOICES = 50


def answer(asked: Asked) -> dict[str, Any]:
    trials = asked.trials
    counts = Counter(trials["status"].tolist())
    names = dict.fromkeys((*trials.space, *trials.parameters.columns))
    return {
        "direction": trials.direction,
        "total": len(trials),
        "statuses": {str(STATUSES[code]): count for code, count in sorted(counts.items())},
        "keys": keys(trials),
        "parameters": [_parameter(trials, name) for name in names],
        "parametersLeftOut": len(trials.parameters.left_out),
    }


def keys(trials: TrialSet) -> list[dict[str, Any]]:
    """The keys of results, ``default`` first."""
    others = {key: column.numbers for key, column in trials.metrics.columns.items() if key != DEFAULT_KEY}
    return [_key(trials, key, values) for key, values in {DEFAULT_KEY: trials["final"], **others}.items()]


def is_choice(space: SpaceColumn | None, column: ValueColumn | None) -> bool:
    """Whether a parameter is shown as choices: by the search space, else by what stands in it."""
    if space is not None:
        return space.choices is not None
    return column is not None and column.has_texts


def choices(space: SpaceColumn | None, column: ValueColumn) -> list[Any]:
    """The choices of a parameter: those of the search space, then others that occur, at most `MOST_CHOICES`."""
    labels, codes = column.categories()
    counts = np.bincount(codes[codes >= 0], minlength=len(labels))
    frequent = [labels[code] for code in np.argsort(-counts, kind="stable")[:MOST_CHOICES]]
    known = list(space.choices or ()) if space is not None else []
    others = [label for label in frequent if not any(is_same(label, choice) for choice in known)]
    return (known + others)[:MOST_CHOICES]


def is_same(label: Any, choice: Any) -> bool:
    """Whether two values are the same; to Python True equals 1."""
    return bool(label == choice) and isinstance(label, bool) == isinstance(choice, bool)


def _key(trials: TrialSet, key: str, values: Floats) -> dict[str, Any]:
    finite = values[np.isfinite(values)]
    return {"name": key, "direction": trials.direction, "count": len(finite), **_limits(finite)}


def _limits(finite: Floats) -> Mapping[str, Any]:
    if not len(finite):
        return {"min": None, "max": None}
    return {"min": short(float(finite.min())), "max": short(float(finite.max()))}


def _parameter(trials: TrialSet, name: str) -> dict[str, Any]:
    space, column = trials.space.get(name), trials.parameters.columns.get(name)
    as_choice = is_choice(space, column)
    empty = ValueColumn()
    finite = column.numbers[np.isfinite(column.numbers)] if column is not None else empty.numbers
    return {
        "name": name,
        "type": space.type if space else None,
        "kind": "choice" if as_choice else "number",
        "log": space.log if space else False,
        "low": space.low if space else None,
        "high": space.high if space else None,
        "choices": choices(space, column or empty) if as_choice else None,
        "observed": _limits(finite),
        "present": int(column.present.sum()) if column is not None else 0,
    }
