"""``columns``: the columns of an experiment: statuses, keys of results, parameters.

An `Axis` of a chart has the values of one column.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nni_manager.analysis import selection
from nni_manager.analysis.columns.column import Floats, ValueColumn
from nni_manager.analysis.columns.space_columns import SpaceColumn
from nni_manager.analysis.columns.trial_set import STATUSES, TrialSet
from nni_manager.analysis.json_text import numbers, short
from nni_manager.analysis.query import DEFAULT_KEY
from nni_manager.analysis.selection import Asked

#: Maximum number of distinct choices of a parameter; all others count as one.
MOST_CHOICES = 50


def answer(asked: Asked) -> dict[str, Any]:
    trials = asked.trials
    counts = np.bincount(trials["status"], minlength=len(STATUSES)).tolist()
    names = dict.fromkeys((*trials.space, *trials.parameters.columns))
    return {
        "direction": trials.direction_of(trials.usual_key),
        "total": len(trials),
        "statuses": {str(status): count for status, count in zip(STATUSES, counts, strict=True) if count},
        "keys": keys(trials),
        "parameters": [_parameter(trials, name) for name in names],
        "parametersLeftOut": len(trials.parameters.left_out),
    }


def keys(trials: TrialSet) -> list[dict[str, Any]]:
    """The keys of results: the objectives, or ``default``, first."""
    names = dict.fromkeys((*_goal_keys(trials), *trials.metrics.columns))
    return [_key(trials, key, selection.results(trials, key)) for key in names]


def _goal_keys(trials: TrialSet) -> list[str]:
    if trials.goals is None:
        return [DEFAULT_KEY]
    has_default = bool(np.isfinite(trials["final"]).any())
    return [*trials.goals.objectives, *([DEFAULT_KEY] if has_default else [])]


def is_choice(space: SpaceColumn | None, column: ValueColumn | None) -> bool:
    """Whether a parameter is shown as choices, by the search space or else by its values."""
    if space is not None:
        return space.choices is not None
    return column is not None and column.has_texts


class Choices(NamedTuple):
    #: Distinct choices: those of the search space, in its order, then others, the most frequent first.
    listed: list[Any]
    #: Number of the others.
    others: int


def choices(space: SpaceColumn | None, column: ValueColumn) -> Choices:
    """The choices of a parameter; of more than `MOST_CHOICES`, the most frequent ones are distinguished."""
    labels, codes = column.categories()
    counts = np.bincount(codes[codes >= 0], minlength=len(labels))
    order = [code for code in np.argsort(-counts, kind="stable").tolist() if counts[code]]
    seen = {_exactly(labels[code]): labels[code] for code in order}
    known = {_exactly(choice): choice for choice in (space.choices or () if space is not None else ())}
    kept = set(list(seen | known)[:MOST_CHOICES])  # in the order of `seen` first
    every = known | {text: label for text, label in seen.items() if text not in known}
    listed = [choice for text, choice in every.items() if text in kept]
    return Choices(listed, len(every) - len(listed))


def _exactly(value: Any) -> str:
    """A key that only equal values share; to Python, True equals 1. A whole number may be a float in a column."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


def _key(trials: TrialSet, key: str, values: Floats) -> dict[str, Any]:
    finite = values[np.isfinite(values)]
    return {"name": key, "direction": trials.direction_of(key), "count": len(finite), **limits(finite)}


def limits(finite: Floats, least: str = "min", greatest: str = "max") -> dict[str, Any]:
    """The least and the greatest of the values under these names, or null."""
    if not len(finite):
        return {least: None, greatest: None}
    return {least: short(float(finite.min())), greatest: short(float(finite.max()))}


def _parameter(trials: TrialSet, name: str) -> dict[str, Any]:
    space, column = trials.space.get(name), trials.parameters.columns.get(name)
    as_choice = is_choice(space, column)
    empty = ValueColumn()
    finite = column.numbers[np.isfinite(column.numbers)] if column is not None else empty.numbers
    found = choices(space, column or empty) if as_choice else Choices([], 0)
    return {
        "name": name,
        "type": space.type if space else None,
        "kind": "choice" if as_choice else "number",
        "log": space.log if space else False,
        "low": space.low if space else None,
        "high": space.high if space else None,
        "choices": found.listed if as_choice else None,
        "others": found.others,
        "observed": limits(finite),
        "present": int(column.present.sum()) if column is not None else 0,
    }


_BINS = 24


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A parameter of all trials, the same for every filter."""

    name: str
    log: bool
    #: Of numbers: the ends; None: no trial has one.
    low: float | None
    high: float | None
    #: None: numbers.
    choices: list[Any] | None
    #: Number of further choices, which share the place after those of `choices`; 0: no trial has one.
    others: int = 0
    #: By position: the number, or the index of the choice; NaN: absent.
    values: Floats
    #: Of numbers: the edges of the bins, one more than bins.
    edges: Floats

    @property
    def bins(self) -> int:
        if self.choices is not None:
            return len(self.choices) + bool(self.others)
        return max(0, len(self.edges) - 1)

    @cached_property
    def bin(self) -> NDArray[np.int16]:
        """The bin of each trial, by its position, or -1."""
        found = np.full(len(self.values), -1, np.int16)
        usable = np.isfinite(self.values)
        if self.choices is not None:
            found[usable] = self.values[usable]
        elif self.bins:
            inside = np.searchsorted(self.edges, self.values[usable], side="right") - 1
            found[usable] = np.clip(inside, 0, self.bins - 1)
        return found

    def described(self) -> dict[str, Any]:
        """The axis in an answer."""
        kind = "number" if self.choices is None else "choice"
        ends = {"low": self.low, "high": self.high}
        return {"name": self.name, "kind": kind, "log": self.log, **ends, **self.places()}

    def places(self) -> dict[str, Any]:
        """The places of choices in an answer: those of ``choices``, then one for ``others`` if it is not 0."""
        return {"choices": self.choices, "others": self.others}

    def bin_limits(self) -> list[dict[str, Any]]:
        """``low`` and ``high``, or ``choice``, of each bin; null for the bin of all other choices."""
        if self.choices is not None:
            choices = [*self.choices, None] if self.others else self.choices
            return [{"low": None, "high": None, "choice": choice} for choice in choices]
        return [{"low": low, "high": high, "choice": None} for low, high in pairwise(numbers(self.edges))]


def axis(trials: TrialSet, word: str, name: str) -> Axis:
    """The axis of a parameter. Raises InvalidInput, with the field `word`, if there is none."""
    column = selection.parameter(trials, word, name)
    space = trials.space.get(name)
    make = _of_choices if is_choice(space, column) else _of_numbers
    return trials.derive(("axis", name), partial(make, trials, name, space))


def names(trials: TrialSet, importances: Sequence[tuple[str, float]], most: int) -> list[str]:
    """The most important parameters, in this order; without importances in their own order."""
    known = [name for name, _ in importances if name in trials.parameters.columns]
    return list(dict.fromkeys((*known, *trials.parameters.columns)))[:most]


def result_axis(values: Floats) -> Axis:
    """The axis of the results."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (None, None)
    edges = _edges(low, high, log=False)
    return Axis(name="result", log=False, low=low, high=high, choices=None, values=values, edges=edges)


def _of_choices(trials: TrialSet, name: str, space: SpaceColumn | None) -> Axis:
    column = selection.parameter(trials, name, name)
    listed, others = choices(space, column)
    labels, codes = column.categories()
    places = {_exactly(choice): at for at, choice in enumerate(listed)}
    found = [places.get(_exactly(label), len(listed)) for label in labels]
    values = np.array([*found, np.nan])[codes]  # -1 is the last, NaN
    others = others if len(listed) in found else 0
    none = np.empty(0)
    return Axis(name=name, log=False, low=None, high=None, choices=listed, others=others, values=values, edges=none)


def _of_numbers(trials: TrialSet, name: str, space: SpaceColumn | None) -> Axis:
    values = selection.parameter(trials, name, name).numbers
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (None, None)
    if space is not None and space.low is not None and space.high is not None:
        low = space.low if low is None else min(low, space.low)
        high = space.high if high is None else max(high, space.high)
    log = space is not None and space.log and low is not None and low > 0
    is_whole = space is not None and space.type == "randint"
    edges = _edges(low, high, log=log, is_whole=is_whole)
    return Axis(name=name, log=log, low=low, high=high, choices=None, values=values, edges=edges)


def _edges(low: float | None, high: float | None, *, log: bool, is_whole: bool = False) -> Floats:
    if low is None or high is None:
        return np.empty(0)
    if is_whole and high - low < _BINS:
        return np.arange(math.floor(low), math.floor(high) + 2, dtype=np.float64) - 0.5
    if low == high:
        return np.array([low, math.nextafter(high, math.inf)])
    if log:
        return np.geomspace(low, high, _BINS + 1).astype(np.float64)
    return np.linspace(low, high, _BINS + 1).astype(np.float64)
