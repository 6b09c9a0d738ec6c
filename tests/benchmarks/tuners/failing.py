"""Families whose trials fail in a third of the space. The optimum is among the other two thirds."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from tests.benchmarks.tuners.problem import Problem, box, dimension, rotation, shift, vector

_UNITS, _LAYERS, _BATCHES = range(32, 513, 32), range(1, 9), (16, 32, 64, 128)
#: Maximum product of units, layers and batch size: a third of all combinations is above it.
_MEMORY = 64_000


def memory(seed: int) -> Problem:
    """A network's loss. Networks that are too large for the memory fail; the best one needs more than half of it."""
    source = random.Random(f"{seed}/memory")
    rate, best = source.uniform(-4, -2), (0, 0, 0)
    while not _MEMORY / 2 < math.prod(best) <= _MEMORY:
        best = source.choice(_UNITS), source.choice(_LAYERS), source.choice(_BATCHES)
    space = {
        "rate": dimension("loguniform", 1e-5, 1e-1),
        "units": dimension("quniform", 32, 512, 32),
        "layers": dimension("randint", 1, 9),
        "batch": dimension("choice", *_BATCHES),
    }

    def size(parameters: Any) -> tuple[float, ...]:
        return parameters["units"], parameters["layers"], parameters["batch"]

    def regret(parameters: Any) -> float:
        units, layers, batch = (math.log2(one / other) for one, other in zip(size(parameters), best, strict=True))
        slope = math.log10(parameters["rate"]) - rate - 0.3 * batch
        return 0.3 * slope**2 + 0.2 * (units + 0.5 * layers) ** 2 + 0.1 * layers**2 + 0.05 * batch**2

    return Problem(space=space, regret=regret, fails=lambda parameters: math.prod(size(parameters)) > _MEMORY)


def fenced(seed: int) -> Problem:
    """A rotated bowl in five dimensions. Trials beyond an oblique plane fail."""
    offset, turn = shift(seed, 5, 3.5), rotation(seed, 5)
    scales, across = 10.0 ** np.linspace(0, 1, 5), rotation(seed + 1000, 5)[0]
    beyond = np.random.default_rng((seed, 18)).uniform(-5.0, 5.0, (3000, 5)) @ across - offset @ across
    fence = float(np.quantile(beyond, 2 / 3))
    if fence < 0.0:  # the optimum would fail
        across, fence = -across, -float(np.quantile(beyond, 1 / 3))
    return Problem(
        space=box(5, -5.0, 5.0),
        regret=lambda parameters: float(scales @ (turn @ (vector(parameters, 5) - offset)) ** 2),
        fails=lambda parameters: float((vector(parameters, 5) - offset) @ across) > fence,
    )
