"""Families over boxes of numbers: bowls, valleys, many local optima; shifted, rotated and noisy by the seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.benchmarks.tuners.problem import Problem, Vector, box, rotation, shift, vector


def sphere(seed: int) -> Problem:
    return _moved(seed, 6, 5.0, lambda x: float(x @ x))


def ellipsoid(seed: int) -> Problem:
    scales = 10.0 ** np.linspace(0, 2, 5)
    return _moved(seed, 5, 5.0, lambda x: float(scales @ x**2), rotated=True)


def rastrigin(seed: int) -> Problem:
    return _moved(seed, 10, 5.12, lambda x: float(np.sum(x**2 + 10 - 10 * np.cos(2 * math.pi * x))))


def ackley_noisy(seed: int) -> Problem:
    return _moved(seed, 4, 10.0, _ackley, noise=0.5)


def ackley_rotated(seed: int) -> Problem:
    return _moved(seed, 8, 15.0, _ackley, rotated=True)


def rosenbrock(seed: int) -> Problem:
    return _moved(seed, 4, 2.0, _rosenbrock, reach=0.4)


def griewank(seed: int) -> Problem:
    roots = np.sqrt(np.arange(1, 7))
    return _moved(seed, 6, 60.0, lambda x: float(x @ x / 4000 + 1 - np.prod(np.cos(x / roots))))


def levy(seed: int) -> Problem:
    return _moved(seed, 5, 10.0, _levy)


def zakharov(seed: int) -> Problem:
    half = np.arange(1, 6) / 2
    return _moved(seed, 5, 5.0, lambda x: float(x @ x + (half @ x) ** 2 + (half @ x) ** 4), reach=0.4)


def quadratic_noisy(seed: int) -> Problem:
    scales = np.array([1.0, 3.0, 10.0, 0.1])
    return _moved(seed, 4, 3.0, lambda x: float(scales @ x**2), rotated=True, noise=2.0)


def valley(seed: int) -> Problem:
    """A bent valley in eight dimensions; two of them matter most."""
    return _moved(seed, 8, 2.0, lambda x: _rosenbrock(x[:2]) + 0.5 * float(x[2:] @ x[2:]), reach=0.4)


def styblinski_tang(seed: int) -> Problem:
    least = 39.16616570377142 * 5

    def regret(x: Vector) -> float:
        return float(np.sum(x**4 - 16 * x**2 + 5 * x) / 2) + least

    return _moved(seed, 5, 5.0, regret, reach=0.2, center=-2.903534)


def branin(seed: int) -> Problem:
    """Mirrored and scaled depending on the seed."""
    source = np.random.default_rng((seed, 3))
    flips = source.integers(0, 2, 2)

    def regret(parameters: Any) -> float:
        u = np.abs(vector(parameters, 2) - flips)
        x, y = 15 * u[0] - 5, 15 * u[1]
        bend = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
        return float(bend**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10) - 0.39788735772973816

    return Problem(space=box(2, 0.0, 1.0), regret=regret)


def camel(seed: int) -> Problem:
    """The six-hump camel function, rotated depending on the seed."""
    turn = rotation(seed, 2)

    def regret(parameters: Any) -> float:
        x, y = turn @ vector(parameters, 2)
        value = (4 - 2.1 * x**2 + x**4 / 3) * x**2 + x * y + (4 * y**2 - 4) * y**2
        return float(value) + 1.031628453489877

    return Problem(space=box(2, -2.0, 2.0), regret=regret)


_HARTMANN_C = np.array([1.0, 1.2, 3.0, 3.2])
_HARTMANN_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(seed: int) -> Problem:
    """Six dimensions, permuted and mirrored depending on the seed."""
    source = np.random.default_rng((seed, 4))
    order, flips = source.permutation(6), source.integers(0, 2, 6)

    def regret(parameters: Any) -> float:
        x = np.abs(vector(parameters, 6) - flips)[order]
        return 3.322368011415515 - float(_HARTMANN_C @ np.exp(-np.sum(_HARTMANN_A * (x - _HARTMANN_P) ** 2, axis=1)))

    return Problem(space=box(6, 0.0, 1.0), regret=regret)


def _moved(
    seed: int,
    count: int,
    bound: float,
    function: Callable[[Vector], float],
    *,
    rotated: bool = False,
    noise: float = 0.0,
    reach: float = 0.7,
    center: float = 0.0,
) -> Problem:
    """A function with its optimum at `center`, moved by up to `reach` of the `bound`s."""
    offset = shift(seed, count, reach * bound)
    turn = rotation(seed, count) if rotated else np.eye(count)
    return Problem(
        space=box(count, -bound, bound),
        regret=lambda parameters: function(turn @ (vector(parameters, count) - offset) + center),
        noise=noise,
    )


def _ackley(x: Vector) -> float:
    wide, narrow = math.sqrt(float(x @ x) / len(x)), float(np.mean(np.cos(2 * math.pi * x)))
    return 20 + math.e - 20 * math.exp(-0.2 * wide) - math.exp(narrow)


def _rosenbrock(x: Vector) -> float:
    x = x + 1
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def _levy(x: Vector) -> float:
    w = 1 + x / 4
    middle = np.sum((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(math.pi * w[:-1] + 1) ** 2))
    last = (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2)
    return float(math.sin(math.pi * w[0]) ** 2 + middle + last)


def ackley(seed: int) -> Problem:
    return _moved(seed, 10, 15.0, _ackley)


def rosenbrock_wide(seed: int) -> Problem:
    return _moved(seed, 10, 3.0, _rosenbrock, reach=0.4)


def schwefel(seed: int) -> Problem:
    """Many distant optima; the best is near an edge. Mirrored depending on the seed."""
    signs = np.random.default_rng((seed, 13)).choice([-1.0, 1.0], 5)

    def regret(parameters: Any) -> float:
        x = signs * vector(parameters, 5)
        return 418.9828872724338 * 5 - float(np.sum(x * np.sin(np.sqrt(np.abs(x)))))

    return Problem(space=box(5, -500.0, 500.0), regret=regret)


def michalewicz(seed: int) -> Problem:
    """Steep ditches on plains, in five dimensions, permuted depending on the seed."""
    order = np.random.default_rng((seed, 14)).permutation(5)
    weights = np.arange(1, 6)

    def regret(parameters: Any) -> float:
        x = vector(parameters, 5)[order]
        return 4.687658179 - float(np.sum(np.sin(x) * np.sin(weights * x**2 / math.pi) ** 20))

    return Problem(space=box(5, 0.0, math.pi), regret=regret)
