"""Families over finite spaces of one kind: whole numbers only, categories only."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.benchmarks.tuners.problem import Problem, dimension

#: Name → lower bound, upper bound (excluded).
_COUNTS = {"layers": (1, 13), "units": (8, 257), "heads": (1, 17), "epochs": (1, 101), "depth": (2, 33)}
#: Number of options of each choice: 2,880 combinations.
_OPTIONS = (2, 2, 2, 3, 4, 5, 6)


def counts(seed: int) -> Problem:
    """Five whole numbers of different ranges, whose logarithms interact."""
    source = np.random.default_rng((seed, 15))
    best = np.log([int(source.integers(low, high)) for low, high in _COUNTS.values()])
    mixing = np.eye(5) + source.normal(0.0, 0.3, (5, 5))

    def regret(parameters: Any) -> float:
        away = np.log([parameters[name] for name in _COUNTS]) - best
        return float(np.sum((mixing @ away) ** 2))

    space = {name: dimension("randint", *bounds) for name, bounds in _COUNTS.items()}
    return Problem(space=space, regret=regret)


def options(seed: int) -> Problem:
    """Seven choices of two to six options, each with a cost; all pairs interact."""
    source, count = np.random.default_rng((seed, 16)), len(_OPTIONS)
    costs = np.zeros(_OPTIONS)
    for first in range(count):
        costs = costs + _along(source.exponential(1.0, _OPTIONS[first]), first)
        for second in range(first + 1, count):
            costs = costs + _along(source.normal(0.0, 0.3, (_OPTIONS[first], _OPTIONS[second])), first, second)
    costs -= costs.min()

    def regret(parameters: Any) -> float:
        return float(costs[tuple("abcdef".index(parameters[f"x{index}"]) for index in range(count))])

    space = {f"x{index}": dimension("choice", *"abcdef"[:size]) for index, size in enumerate(_OPTIONS)}
    return Problem(space=space, regret=regret)


def _along(values: Any, *axes: int) -> Any:
    """The array with its axes at these axes of all choices."""
    return values.reshape([size if axis in axes else 1 for axis, size in enumerate(_OPTIONS)])
