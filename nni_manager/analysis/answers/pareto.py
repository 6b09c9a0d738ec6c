"""``pareto``: the trials by two of several objectives, and which of them no other one is better than."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from nni_manager.analysis import selection
from nni_manager.analysis.asked import Asked
from nni_manager.analysis.columns.growing import Floats, Integers, Mask
from nni_manager.analysis.columns.trial_set import TrialSet
from nni_manager.analysis.drawn import flags, sample, selected
from nni_manager.analysis.front import Front
from nni_manager.analysis.json_text import numbers, plain
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.objectives import Constraint, Goals

#: Most trials that are drawn.
_MOST = 3000
_DERIVED = "pareto"


@dataclass(frozen=True, slots=True)
class _Judged:
    """All trials by the objectives. Masks and values are by position."""

    usable: Mask
    violation: Floats
    front: Mask


def answer(asked: Asked) -> dict[str, Any]:
    """Points with ``x`` and ``y``, the front among them; the front is that of all trials, whatever the filter."""
    goals = asked.trials.goals
    if goals is None:
        raise InvalidInput("this experiment has no objectives in its config, so that one number says what is best")
    x, y = _names(asked, goals)
    judged = _judged(asked.trials, goals)
    mask = selection.chosen(asked.trials, asked.query)
    found = np.flatnonzero(mask & judged.usable)
    drawn = sample(asked.trials, found, _MOST, judged.front | flags(asked.trials, selected(asked)))
    return {
        "objectives": [{"name": name, "direction": mode} for name, mode in goals.objectives.items()],
        "constraints": {name: str(limit) for name, limit in goals.constraints.items()},
        "x": x,
        "y": y,
        "points": _points(asked.trials, judged, drawn, x, y),
        "frontSize": int(judged.front.sum()),
        "shown": len(drawn),
        "of": int(mask.sum()),
        "notNumbers": int((mask & (asked.trials["status"] == selection.SUCCEEDED) & ~judged.usable).sum()),
    }


def _points(trials: TrialSet, judged: _Judged, drawn: Integers, x: str, y: str) -> dict[str, Any]:
    return {
        "number": plain(trials["number"][drawn]),
        "id": [trials.ids[position] for position in drawn.tolist()],
        "x": numbers(selection.results(trials, x)[drawn]),
        "y": numbers(selection.results(trials, y)[drawn]),
        "front": plain(judged.front[drawn]),
        "feasible": plain(judged.violation[drawn] == 0),
    }


def _names(asked: Asked, goals: Goals) -> tuple[str, str]:
    """The two objectives: those that are asked for, else the first ones. Raises InvalidInput."""
    names = list(goals.objectives)
    for word, given in (("a", asked.query.a), ("b", asked.query.b)):
        if given and given not in names:
            raise InvalidInput(f"{word}: {given} is no objective; there are {', '.join(names)}")
    x = asked.query.a or next((name for name in names if name != asked.query.b), names[0])
    return x, asked.query.b or next((name for name in names if name != x), x)


def _judged(trials: TrialSet, goals: Goals) -> _Judged:
    known = trials.derived.get(_DERIVED)
    if known is None:
        known = trials.derived[_DERIVED] = _judge(trials, goals)
    assert isinstance(known, _Judged)
    return known


def _judge(trials: TrialSet, goals: Goals) -> _Judged:
    usable: Mask = trials["status"] == selection.SUCCEEDED
    violation = np.zeros(len(trials))
    columns = []
    for name, mode in goals.objectives.items():
        values = _values(trials, name)
        usable = usable & np.isfinite(values)
        columns.append(-values if mode is OptimizeMode.MAXIMIZE else values)
    for name, limit in goals.constraints.items():
        violation += _violation(limit, _values(trials, name))
    losses = np.stack(columns, axis=1)
    front = _kept(trials, goals).follow(losses, violation, usable)
    return _Judged(usable, violation, flags(trials, front.tolist()))


def _kept(trials: TrialSet, goals: Goals) -> Front:
    """The front so far, by these goals."""
    known: tuple[Goals, Front] | None = trials.kept.get(_DERIVED)
    if known is None or known[0] != goals:
        known = trials.kept[_DERIVED] = (goals, Front())
    return known[1]


def _violation(limit: Constraint, values: Floats) -> Floats:
    """As `Constraint.violation`, of many values; NaN: there is none."""
    beyond = values - limit.bound if limit.operator.startswith("<") else limit.bound - values
    least = 0.0 if "=" in limit.operator else sys.float_info.min
    found: Floats = np.where(beyond == 0, least, np.maximum(beyond, 0.0))
    return np.where(np.isnan(values), np.inf, found)


def _values(trials: TrialSet, name: str) -> Floats:
    """The numbers of a key; none where no trial has reported it."""
    try:
        return selection.results(trials, name)
    except InvalidInput:
        return np.full(len(trials), np.nan)
