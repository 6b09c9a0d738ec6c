"""Several objectives and constraints: the worth of final results, and their Pareto set.

The worth of a result consists of losses, one per objective (smaller is better), and violations, one per constraint
(0: satisfied). The Pareto set contains the results that no other result is better than in every objective. If any
result satisfies all constraints, only such results are in the set. Otherwise, the set contains those with the smallest
sum of violations (Deb et al. 2002, constrained domination).
"""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from nni_manager.domain.metrics import OptimizeMode, default_number

_CONSTRAINT = re.compile(r"\s*(<=|>=|<|>)\s*(\S+)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    #: ``<=``, ``>=``, ``<`` or ``>``.
    operator: str
    bound: float

    def __str__(self) -> str:
        return f"{self.operator} {repr(self.bound).removesuffix('.0')}"

    def violation(self, number: float | None) -> float:
        """The distance of a number beyond the bound; 0 if it satisfies the constraint, infinite without a number."""
        if number is None or math.isnan(number):
            return math.inf
        beyond = number - self.bound if self.operator.startswith("<") else self.bound - number
        if beyond == 0 and "=" not in self.operator:
            return sys.float_info.min
        return max(beyond, 0.0)


def parse_constraint(text: object) -> Constraint:
    """The constraint in a text such as ``<= 8``. Raises ValueError with a message that follows the field's name."""
    found = _CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
    try:
        bound = float(found[2]) if found else math.nan
    except ValueError:
        bound = math.nan
    if found is None or not math.isfinite(bound):
        raise ValueError('must be an operator (<=, >=, < or >) and a number, such as "<= 8"')
    return Constraint(operator=found[1], bound=bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """The worth of a result."""

    #: One for each objective, in the order of the config; smaller is better.
    losses: tuple[float, ...]
    #: One for each constraint, in the order of the config; 0: satisfied.
    violations: tuple[float, ...] = ()

    @property
    def is_feasible(self) -> bool:
        return not any(self.violations)

    @property
    def violation(self) -> float:
        """The sum of the violations; 0 for a feasible result."""
        return sum(self.violations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """The objectives and constraints of an experiment, by the keys of its trials' final results."""

    objectives: Mapping[str, OptimizeMode]
    constraints: Mapping[str, Constraint] = field(default_factory=dict)

    @staticmethod
    def of(objectives: Mapping[str, object], constraints: Mapping[str, object]) -> Goals:
        """The goals in a valid config. Raises ValueError for invalid ones."""
        return Goals(
            objectives={name: OptimizeMode(str(mode)) for name, mode in objectives.items()},
            constraints={name: parse_constraint(text) for name, text in constraints.items()},
        )

    @property
    def names(self) -> frozenset[str]:
        """The keys of objectives and constraints."""
        return frozenset((*self.objectives, *self.constraints))

    def judge(self, result: object) -> Worth | None:
        """The worth of a final result as reported; None if an objective is missing or not a finite number.

        A result that is a number, not an object, counts as its `default`.
        """
        values = result if isinstance(result, Mapping) else {"default": result}
        numbers = [default_number(values.get(name)) for name in self.objectives]
        losses = [
            -number if mode is OptimizeMode.MAXIMIZE else number
            for number, mode in zip(numbers, self.objectives.values(), strict=True)
            if number is not None and math.isfinite(number)
        ]
        if len(losses) < len(numbers):
            return None
        violations = (limit.violation(default_number(values.get(name))) for name, limit in self.constraints.items())
        return Worth(losses=tuple(losses), violations=tuple(violations))

    def values(self, losses: Sequence[float]) -> dict[str, float]:
        """Objective → its number as reported, of losses."""
        modes = self.objectives.items()
        return {
            name: -loss if mode is OptimizeMode.MAXIMIZE else loss
            for (name, mode), loss in zip(modes, losses, strict=True)
        }


Name = TypeVar("Name")

Ranked = tuple[Name, Worth]


def extended_set(front: Sequence[Ranked[Name]], new: Iterable[Ranked[Name]]) -> list[Ranked[Name]]:
    """The Pareto set of a Pareto set and new results, ordered by losses, including all equal results.

    With n results, f of them in the set: O(n log n) for one or two objectives; for more, each new result is compared
    with the f of the set.
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
    """The set of results with one or two losses: in the order of the first, each with a smaller second loss."""
    front: list[Ranked[Name]] = []
    for one in sorted(results, key=_losses):
        if not front or one[1].losses == front[-1][1].losses:
            front.append(one)
        elif len(one[1].losses) > 1 and one[1].losses[1] < front[-1][1].losses[1]:
            front.append(one)
    return front


def _compared(front: list[Ranked[Name]], new: Iterable[Ranked[Name]]) -> list[Ranked[Name]]:
    """The set for more objectives. `new`: ordered by losses, so that no later result dominates an earlier one."""
    for one in new:
        losses = one[1].losses
        if not any(_dominates(other[1].losses, losses) for other in front):
            front = [other for other in front if not _dominates(losses, other[1].losses)]
            front.append(one)
    return front


def _dominates(losses: tuple[float, ...], others: tuple[float, ...]) -> bool:
    return losses != others and all(map(operator.le, losses, others))
