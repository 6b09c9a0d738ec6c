"""Where to look next: the place of greatest expected improvement, by its logarithm.

See S. Ament et al., "Unexpected Improvements to Expected Improvement for Bayesian Optimization", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nni_manager.tuners.auto.lattice import Array, Lattice

Score = Callable[[Array], Array]
_SPREAD = (0.2, 0.05, 0.01)


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Logarithm of how much less than `best` is expected."""
    z = (best - mean) / deviation
    return np.asarray(np.log(deviation) + _log_h(z))


def _log_h(z: Array) -> Array:
    """log(density(z) + z * distribution(z)) of the standard normal, also far out on the left."""
    near = np.maximum(z, -5.0)
    tail = np.array([0.5 * math.erfc(-one / math.sqrt(2)) for one in near])
    density = np.exp(-0.5 * near**2) / math.sqrt(2 * math.pi)
    far = np.minimum(z, -5.0)
    log_far = -0.5 * far**2 - 0.5 * math.log(2 * math.pi) - 2 * np.log(-far) + np.log1p(-3 / far**2 + 15 / far**4)
    return np.where(z > -5.0, np.log(np.maximum(density + near * tail, 1e-300)), log_far)


def candidates(lattice: Lattice, elites: Array, source: np.random.Generator, count: int) -> Array:
    """Rows to judge: half anywhere, half near the best ones, with few or all dimensions changed."""
    width = len(lattice.places)
    anywhere = source.random((count // 2, width))
    parents = elites[np.minimum(source.geometric(0.35, count // 2) - 1, len(elites) - 1)]
    spread = np.asarray(_SPREAD)[source.integers(0, len(_SPREAD), count // 2)][:, None]
    return lattice.settle(np.concatenate([anywhere, moved(lattice, parents, spread, source)]))


def moved(lattice: Lattice, rows: Array, spread: Array, source: np.random.Generator) -> Array:
    """Each row changed a little in one to all of its dimensions; a choice is drawn anew."""
    count, width = rows.shape
    share = source.choice([1.0 / max(width, 1), 0.4, 1.0], (count, 1))
    mask = source.random((count, width)) < share
    mask[np.arange(count), source.integers(0, max(width, 1), count)] = True
    steps = source.normal(size=(count, width)) * spread
    step_least = lattice.least_steps
    steps = np.where(np.abs(steps) < step_least, np.sign(steps) * step_least, steps)
    fresh = source.random((count, width))
    changed = np.where(lattice.categories, fresh, rows + steps)
    # categories change seldom where numbers change together
    keep = lattice.categories & (source.random((count, width)) < np.where(share == 1.0, 0.8, 0.0))
    return np.where(mask & ~keep, changed, rows)


def best_row(lattice: Lattice, score: Score, elites: Array, source: np.random.Generator, *, count: int, rounds: int) -> Array:
    """The row of greatest score among candidates, improved by smaller and smaller steps."""
    rows = candidates(lattice, elites, source, count)
    scores = score(rows)
    spread = 0.1
    for _ in range(rounds):
        top = np.argsort(-scores, kind="stable")[:6]
        rows, scores = rows[top], scores[top]
        around = lattice.settle(moved(lattice, np.repeat(rows, 32, axis=0), np.array(spread), source))
        rows = np.concatenate([rows, around])
        scores = np.concatenate([scores, score(around)])
        spread *= 0.45
    return np.asarray(rows[np.argmax(scores)])
