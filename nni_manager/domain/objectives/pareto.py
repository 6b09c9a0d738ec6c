"""Pareto sets: the results that no other one is better than in every objective.

Feasible results come first: as long as one satisfies all constraints, only such results are in the set. While none
does, the set is made of those whose violations have the smallest sum (Deb et al. 2002, constrained domination).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TypeVar

from nni_manager.domain.objectives.goals import Worth

Name = TypeVar("Name")

Ranked = tuple[Name, Worth]


def extended(front: Sequence[Ranked[Name]], new: Iterable[Ranked[Name]]) -> list[Ranked[Name]]:
    """The Pareto set of a Pareto set and new results, ordered by losses; equal results are all in it.

    n results in all, f of them in the set: O(n log n) for one or two objectives; for more, each new result is held
    against the f of the set.
    """
    added = list(new)
    least = min((worth.violation for _, worth in (*front, *added)), default=0.0)
    kept = [one for one in front if one[1].violation == least]
    added = [one for one in added if one[1].violation == least]
    if any(len(worth.losses) > 2 for _, worth in added[:1]):
        return sorted(_compared(kept, sorted(added, key=_losses)), key=_losses)
    return _swept([*kept, *added]) if added else kept


def _losses(ranked: Ranked[Name]) -> tuple[float, ...]:
    return ranked[1].losses


def _swept(results: Sequence[Ranked[Name]]) -> list[Ranked[Name]]:
    """The set of results with one or two losses: ordered by the first one, each that has a smaller second one."""
    front: list[Ranked[Name]] = []
    for one in sorted(results, key=_losses):
        if not front or one[1].losses == front[-1][1].losses:
            front.append(one)
        elif len(one[1].losses) > 1 and one[1].losses[1] < front[-1][1].losses[1]:
            front.append(one)
    return front


def _compared(front: list[Ranked[Name]], new: Iterable[Ranked[Name]]) -> list[Ranked[Name]]:
    """`new`: ordered by losses, so that none is dominated by a later one."""
    for one in new:
        losses = one[1].losses
        if not any(_dominates(other[1].losses, losses) for other in front):
            front = [other for other in front if not _dominates(losses, other[1].losses)]
            front.append(one)
    return front


def _dominates(losses: tuple[float, ...], others: tuple[float, ...]) -> bool:
    return losses != others and all(map(operator.le, losses, others))
