"""All families. Auto was developed on `DEVELOPMENT`; its figures come from `HELD_OUT`.

`NAMED` are the functions in the documentation's table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.tuners import registry
from tests.benchmarks.tuners import failing, finite, mixed, smooth
from tests.benchmarks.tuners.problem import Problem

Family = Callable[[int], Problem]


def noisy(family: Family, share: float) -> Family:
    """The family with noise; `share`: its deviation, as a share of the range of nine tenths of all values."""

    def with_noise(seed: int) -> Problem:
        problem = family(seed)
        return replace(problem, noise=share * _range(problem, seed))

    with_noise.__name__ = f"{family.__name__} {share:.0%}"  # type: ignore[attr-defined]
    return with_noise


def _range(problem: Problem, seed: int) -> float:
    tuner = registry.create(AlgorithmSpec(name="Random", class_args={"seed": seed}))
    tuner.update_search_space(problem.space)
    values = sorted(problem.regret(tuner.propose(number)) for number in range(200))
    return values[190] - values[10]


def _by_name(*families: Family) -> dict[str, Family]:
    return {family.__name__: family for family in families}  # type: ignore[attr-defined]


NAMED = _by_name(smooth.branin, smooth.hartmann, smooth.rastrigin, mixed.nested, mixed.digits)
DEVELOPMENT = _by_name(
    *(smooth.branin, smooth.rastrigin, smooth.sphere, smooth.ellipsoid, smooth.ackley_noisy, smooth.rosenbrock),
    *(smooth.ackley, smooth.rosenbrock_wide, smooth.schwefel, smooth.michalewicz),
    *(smooth.griewank, smooth.levy, smooth.zakharov, smooth.styblinski_tang, smooth.quadratic_noisy),
    *(mixed.nested, mixed.digits, mixed.integers, mixed.plateau, mixed.categories, mixed.training),
)
HELD_OUT = _by_name(
    *(smooth.hartmann, smooth.ackley_rotated),
    *(smooth.valley, smooth.camel, mixed.quantised, mixed.steps, mixed.logarithmic),
    mixed.conditional,
)
#: Whole numbers only, and categories only.
FINITE = _by_name(finite.counts, finite.options)
#: A third of the space fails.
FAILING = _by_name(failing.memory, failing.fenced)
#: Held-out families with noise of 3, 10 and 30 % of the range.
NOISY = _by_name(
    *(
        noisy(family, share)
        for family in (smooth.hartmann, smooth.camel, smooth.valley, mixed.logarithmic)
        for share in (0.03, 0.1, 0.3)
    )
)
