"""``pareto``: the trials by two of several objectives, and the Pareto front.

The front is kept and extended as trials end, like `domain.objectives.extended_set`, for many results at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from nni_manager.analysis import selection
from nni_manager.analysis.columns.column import Floats, Integers, Mask
from nni_manager.analysis.columns.trial_set import TrialSet
from nni_manager.analysis.json_text import numbers, plain
from nni_manager.analysis.selection import Asked, flags, sample, selected
from nni_manager.domain import objectives
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.objectives import Goals, Worth

#: Maximum number of drawn trials.
_MOST = 3000
_DERIVED = "pareto"


@dataclass(frozen=True, slots=True)
class _Judged:
    """All trials by the objectives. Masks and values are by position."""

    usable: Mask
    violation: Floats
    front: Mask


def answer(asked: Asked) -> dict[str, Any]:
    """Points with ``x`` and ``y``, including the front, which is that of all trials regardless of the filter."""
    goals = asked.trials.goals
    if goals is None:
        raise InvalidInput("this experiment's config sets no objectives; a Pareto front needs several")
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
    """The two requested objectives; by default, the first ones. Raises InvalidInput."""
    names = list(goals.objectives)
    for word, given in (("a", asked.query.a), ("b", asked.query.b)):
        if given and given not in names:
            raise InvalidInput(f"{word}: {given} is not an objective; use {', '.join(names)}")
    x = asked.query.a or next((name for name in names if name != asked.query.b), names[0])
    return x, asked.query.b or next((name for name in names if name != x), x)


def _judged(trials: TrialSet, goals: Goals) -> _Judged:
    return trials.derive(_DERIVED, partial(_judge, trials, goals))


def _judge(trials: TrialSet, goals: Goals) -> _Judged:
    usable: Mask = trials["status"] == selection.SUCCEEDED
    violation = selection.violation(trials)
    columns = []
    for name, mode in goals.objectives.items():
        values = selection.results(trials, name)
        usable = usable & np.isfinite(values)
        columns.append(-values if mode is OptimizeMode.MAXIMIZE else values)
    losses = np.stack(columns, axis=1)
    front = _kept(trials, goals).follow(losses, violation, usable)
    return _Judged(usable, violation, flags(trials, front.tolist()))


def _kept(trials: TrialSet, goals: Goals) -> Front:
    known: tuple[Goals, Front] | None = trials.kept.get(_DERIVED)
    if known is None or known[0] != goals:
        known = trials.kept[_DERIVED] = (goals, Front())
    return known[1]


#: With up to this number of objectives, one pass over the sorted results finds the front.
_SWEPT = 2


@dataclass(slots=True)
class Front:
    """Arrays are by position; losses have a row for each trial, a column for each objective (smaller is better)."""

    losses: Floats = field(default_factory=lambda: np.empty((0, 0)))
    violation: Floats = field(default_factory=lambda: np.empty(0))
    #: The trials of the front's last update.
    taken: Mask = field(default_factory=lambda: np.empty(0, np.bool_))
    positions: Integers = field(default_factory=lambda: np.empty(0, np.int64))

    def follow(self, losses: Floats, violation: Floats, usable: Mask) -> Integers:
        """The positions of the front of all usable trials.

        Only new ones are compared with the known front, unless a known result has changed.
        """
        if not self._goes_on(losses, violation, usable):
            self.taken, self.positions = np.empty(0, np.bool_), np.empty(0, np.int64)
        new = usable.copy()
        new[: len(self.taken)] &= ~self.taken
        self.positions = extended(losses, violation, self.positions, np.flatnonzero(new))
        self.losses, self.violation, self.taken = losses, violation, usable
        return self.positions

    def _goes_on(self, losses: Floats, violation: Floats, usable: Mask) -> bool:
        count, known = len(self.taken), np.flatnonzero(self.taken)
        return (
            count <= len(usable)
            and losses.shape[1] == self.losses.shape[1]
            and bool(usable[known].all())
            and np.array_equal(losses[known], self.losses[known])
            and np.array_equal(violation[known], self.violation[known])
        )


def extended(losses: Floats, violation: Floats, front: Integers, new: Integers) -> Integers:
    """The positions of the front of a front and new trials."""
    if not len(new):
        return front
    least = min(violation[front].min(initial=np.inf), violation[new].min())
    front, new = front[violation[front] == least], new[violation[new] == least]
    if losses.shape[1] <= _SWEPT:
        return _swept(losses, np.concatenate((front, new)))
    return _joined_fronts(losses, front, _reduced(losses, new))


def _swept(losses: Floats, positions: Integers) -> Integers:
    results = zip(positions.tolist(), losses[positions].tolist(), strict=True)
    found = objectives.extended_set([], ((position, Worth(losses=tuple(row))) for position, row in results))
    return np.array([position for position, _ in found], np.int64)


def _reduced(losses: Floats, positions: Integers) -> Integers:
    """The front of these trials.

    In the order of their losses, no later trial dominates an earlier one. So each remaining trial is in the front after
    it was compared with all before it.
    """
    order = positions[np.lexsort(losses[positions].T[::-1])]
    columns = [losses[order, objective] for objective in range(losses.shape[1])]
    at = 0
    while at < len(order):
        # by the first objective no later one is better
        is_kept = np.logical_or.reduce([column[at + 1 :] < column[at] for column in columns[1:]])
        if not is_kept.all():
            is_kept |= np.logical_and.reduce([column[at + 1 :] == column[at] for column in columns])
            kept = np.concatenate((np.ones(at + 1, np.bool_), is_kept))
            order, columns = order[kept], [column[kept] for column in columns]
        at += 1
    return order


def _joined_fronts(losses: Floats, front: Integers, new: Integers) -> Integers:
    added = []
    for position in new.tolist():
        values, one = losses[front], losses[position]
        if not _dominates(values, one).any():
            front = front[~_dominated(values, one)]
            added.append(position)
    return np.concatenate((front, np.array(added, np.int64)))


def _dominates(values: Floats, one: Floats) -> Mask:
    return np.asarray((values <= one).all(axis=1) & (values < one).any(axis=1))


def _dominated(values: Floats, one: Floats) -> Mask:
    return np.asarray((values >= one).all(axis=1) & (values > one).any(axis=1))
