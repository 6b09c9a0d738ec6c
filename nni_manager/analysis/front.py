"""The Pareto front of an experiment's trials, which is kept and extended as trials end.

The same set as `domain.objectives`, for many results at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nni_manager.analysis.columns.growing import Floats, Integers, Mask
from nni_manager.domain import objectives
from nni_manager.domain.objectives import Worth

#: With so many objectives the front is found in one pass over the sorted results, however many are in it.
_SWEPT = 2


@dataclass(slots=True)
class Front:
    """Arrays are by position; losses have a row for each trial, a column for each objective (smaller is better)."""

    losses: Floats = field(default_factory=lambda: np.empty((0, 0)))
    violation: Floats = field(default_factory=lambda: np.empty(0))
    #: The trials that the front is that of.
    taken: Mask = field(default_factory=lambda: np.empty(0, np.bool_))
    positions: Integers = field(default_factory=lambda: np.empty(0, np.int64))

    def follow(self, losses: Floats, violation: Floats, usable: Mask) -> Integers:
        """The positions of the front of all usable trials. Only those that are new are held against the known front,
        unless a known result has changed."""
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
    return _joined(losses, front, _reduced(losses, new))


def _swept(losses: Floats, positions: Integers) -> Integers:
    results = zip(positions.tolist(), losses[positions].tolist(), strict=True)
    found = objectives.extended_set([], ((position, Worth(losses=tuple(row))) for position, row in results))
    return np.array([position for position, _ in found], np.int64)


def _reduced(losses: Floats, positions: Integers) -> Integers:
    """The front of these trials. In the order of their losses none is dominated by a later one, so that what is left is
    in the front once all before it have been held against it."""
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


def _joined(losses: Floats, front: Integers, new: Integers) -> Integers:
    """The front of two fronts."""
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
