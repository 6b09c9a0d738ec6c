"""A local minimum of a smooth function: the BFGS method with backtracking.

J. Nocedal, S. J. Wright, "Numerical Optimization", 2006, chapters 3 and 6.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nni_manager.tuners.auto.lattice import Array

#: Value and gradient at a place.
Objective = Callable[[Array], tuple[float, Array]]

#: Bounds of each coordinate, all of which are logarithms.
_LEAST, _MOST = -15.0, 6.0
#: The longest step along a coordinate, and the share of it that is given up on.
_LONGEST, _SHORTEST = 2.0, 1e-3
#: An improvement that is too small to go on for.
_ENOUGH = 1e-5
_STEPS = 40


def minimise(objective: Objective, start: Array) -> tuple[Array, float]:
    """The place that was reached from `start`, and the value there."""
    at, (value, slope) = start, objective(start)
    inverse = np.eye(len(start))
    for _ in range(_STEPS):
        there, new_value, new_slope = _step(objective, at, value, slope, inverse)
        if new_value >= value - _ENOUGH:
            return (there, new_value) if new_value < value else (at, value)
        inverse = _updated(inverse, there - at, new_slope - slope)
        at, value, slope = there, new_value, new_slope
    return at, value


def _step(objective: Objective, at: Array, value: float, slope: Array, inverse: Array) -> tuple[Array, float, Array]:
    """Place, value and gradient after one step."""
    direction = -inverse @ slope
    descent = min(float(direction @ slope), 0.0)
    direction = direction * min(1.0, _LONGEST / max(float(np.max(np.abs(direction))), 1e-12))
    size = 1.0
    while True:
        there = np.clip(at + size * direction, _LEAST, _MOST)
        new_value, new_slope = objective(there)
        if new_value <= value + 1e-4 * size * descent or size < _SHORTEST:
            return there, new_value, new_slope
        size /= 3


def _updated(inverse: Array, moved: Array, turned: Array) -> Array:
    """The next estimate of the inverse of the second derivatives."""
    product = float(moved @ turned)
    if product <= 1e-10:
        return inverse
    rest = np.eye(len(moved)) - np.outer(moved, turned) / product
    return np.asarray(rest @ inverse @ rest.T + np.outer(moved, moved) / product)
