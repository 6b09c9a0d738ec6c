"""The next proposal: the candidate with the greatest expected improvement, by its logarithm.

S. Ament et al., "Unexpected Improvements to Expected Improvement for Bayesian Optimization", 2023. Candidates near the
best, with few changed dimensions, are drawn as in R. G. Regis and C. A. Shoemaker, "Combining radial basis function
surrogates and dynamic coordinate search in high-dimensional expensive black-box optimization", 2013.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nni_manager.tuners.auto.lattice import Array, Lattice, Mask

Score = Callable[[Array], Array]

_CANDIDATES, _NEAR_CANDIDATES = 1024, 512
#: Standard deviations of the steps from the best, as shares of the range.
_SPREAD = np.array([0.2, 0.05, 0.01])
#: Rounds of decreasing steps around the best candidates, number of candidates kept, and steps from each.
_ROUNDS, _KEPT, _AROUND = 5, 6, 32
_FIRST_SPREAD, _SHRINKING = 0.1, 0.45
#: Rate at which the neighbourhood of the best shrinks with the number of results, as in Anneal.
_NEARER = 0.1


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Logarithm of the expected improvement below `best`."""
    return np.asarray(np.log(deviation) + _log_expectation((best - mean) / deviation))


def anywhere(lattice: Lattice, elites: Array, score: Score, source: np.random.Generator) -> Array:
    """The row with the greatest score in the whole space. `elites`: known rows, the best one first."""
    rows = _candidates(lattice, elites, source)
    scores, spread = score(rows), _FIRST_SPREAD
    for _ in range(_ROUNDS):
        top = np.argsort(-scores, kind="stable")[:_KEPT]
        around = _moved(lattice, np.repeat(rows[top], _AROUND, axis=0), np.array(spread), source)
        rows = np.concatenate([rows[top], around])
        scores = np.concatenate([scores[top], score(around)])
        spread *= _SHRINKING
    return np.asarray(rows[np.argmax(scores)])


def near(lattice: Lattice, elites: Array, score: Score, source: np.random.Generator, results: int) -> Array:
    """The row with the greatest score in a neighbourhood of the best ones, which shrinks with the number of results."""
    half = 0.5 / (1 + _NEARER * results)
    parents = elites[np.minimum(source.geometric(0.6, _NEAR_CANDIDATES) - 1, len(elites) - 1)]
    steps = source.uniform(-half, half, parents.shape)
    mask = _changed(parents.shape, source)[0] & (~lattice.categories | (source.random(parents.shape) < 2 * half))
    rows = _stepped(lattice, parents, steps, mask, source)
    return np.asarray(rows[np.argmax(score(rows))])


def _candidates(lattice: Lattice, elites: Array, source: np.random.Generator) -> Array:
    """Candidates: half of them anywhere, half near the best ones."""
    half = _CANDIDATES // 2
    everywhere = source.random((half, elites.shape[1]))
    parents = elites[np.minimum(source.geometric(0.35, half) - 1, len(elites) - 1)]
    spread = _SPREAD[source.integers(0, len(_SPREAD), half)][:, None]
    return np.concatenate([lattice.settle(everywhere), _moved(lattice, parents, spread, source)])


def _moved(lattice: Lattice, rows: Array, spread: Array, source: np.random.Generator) -> Array:
    """Each row with steps in one to all of its dimensions; categories change seldom where all numbers do."""
    mask, share = _changed(rows.shape, source)
    kept = lattice.categories & (source.random(rows.shape) < np.where(share == 1.0, 0.8, 0.0))
    return _stepped(lattice, rows, source.normal(size=rows.shape) * spread, mask & ~kept, source)


def _changed(shape: tuple[int, ...], source: np.random.Generator) -> tuple[Mask, Array]:
    """Which dimensions of each row change, at least one of them; and their share."""
    count, width = shape
    share = np.array([1.0 / width, 0.4, 1.0])[source.choice(3, (count, 1))]
    mask: Mask = source.random(shape) < share
    mask[np.arange(count), source.integers(0, width, count)] = True
    return mask, share


def _stepped(lattice: Lattice, rows: Array, steps: Array, mask: Mask, source: np.random.Generator) -> Array:
    """Rows with steps according to `mask`, at least to the next value; a category is drawn again."""
    steps = np.where(np.abs(steps) < lattice.least_steps, np.sign(steps) * lattice.least_steps, steps)
    fresh = np.where(lattice.categories, source.random(rows.shape), rows + steps)
    return lattice.settle(np.where(mask, fresh, rows))


def _log_expectation(z: Array) -> Array:
    """log(density(z) + z * distribution(z)) of the standard normal distribution, also for very negative z."""
    close, far = np.maximum(z, -5.0), np.minimum(z, -5.0)
    below = np.array([0.5 * math.erfc(-one / math.sqrt(2)) for one in close])
    density = np.exp(-0.5 * close**2) / math.sqrt(2 * math.pi)
    tail = -0.5 * far**2 - 0.5 * math.log(2 * math.pi) - 2 * np.log(-far) + np.log1p(-3 / far**2 + 15 / far**4)
    return np.asarray(np.where(z > -5.0, np.log(np.maximum(density + close * below, 1e-300)), tail))
