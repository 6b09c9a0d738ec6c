"""All families. Auto was developed on `DEVELOPMENT`; its figures come from `HELD_OUT`.

`NAMED` are the functions in the documentation's table.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.benchmarks.tuners import mixed, smooth
from tests.benchmarks.tuners.problem import Problem

Family = Callable[[int], Problem]


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
