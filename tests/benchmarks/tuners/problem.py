"""A problem of the benchmark: search space, reported results and regret."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Space = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """To be minimised."""

    space: Space
    #: Parameters → true value minus the minimum: 0 at the optimum.
    regret: Callable[[Any], float]
    #: Standard deviation of reported results around the true value.
    noise: float = 0.0
    #: Parameters → whether their trial fails.
    fails: Callable[[Any], bool] = lambda parameters: False

    def reported(self, parameters: Any, source: random.Random) -> float | None:
        """The reported result of a trial with these parameters; None: it fails."""
        if self.fails(parameters):
            return None
        return self.regret(parameters) + (source.gauss(0.0, self.noise) if self.noise else 0.0)


def dimension(kind: str, *values: object) -> Space:
    """One entry of a search space."""
    return {"_type": kind, "_value": list(values)}


def box(count: int, low: float, high: float, kind: str = "uniform") -> dict[str, Any]:
    """`count` equal dimensions: x0, x1, …"""
    return {f"x{index}": dimension(kind, low, high) for index in range(count)}


def vector(parameters: Mapping[str, Any], count: int) -> Vector:
    """The values of x0, x1, … of a `box`."""
    return np.array([float(parameters[f"x{index}"]) for index in range(count)])


def shift(seed: int, count: int, reach: float) -> Vector:
    """Shift of an optimum: uniform within ±`reach` in each of `count` dimensions."""
    return np.random.default_rng((seed, 1)).uniform(-reach, reach, count)


def rotation(seed: int, count: int) -> Vector:
    """A random orthogonal matrix."""
    matrix, triangle = np.linalg.qr(np.random.default_rng((seed, 2)).normal(size=(count, count)))
    return np.asarray(matrix * np.sign(np.diag(triangle)))
