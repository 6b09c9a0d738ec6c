"""Gaussian-process regression: a quadratic trend, and around it a Matérn-5/2 kernel with a length scale per dimension.

Length scales, the trend's weight and the noise maximize the posterior density; the prior of length scales grows with
the square root of the number of dimensions (C. Hvarfner, E. O. Hellsten, L. Nardi, "Vanilla Bayesian Optimization
Performs Great in High Dimensions", 2024). The variance is integrated out. See C. E. Rasmussen, C. K. I. Williams,
"Gaussian Processes for Machine Learning", 2006, chapters 2 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nni_manager.tuners.auto.lattice import Array, Indices

#: Prior of the logarithms, mean and deviation: of length scales (for one dimension), of the variances of trend and
#: noise relative to the kernel's.
_SCALE = math.log(0.5), 0.9
_TREND = 0.0, 2.0
_NOISE = math.log(1e-4), 2.5
#: Start of the second search for the maximum density: the first may mistake noise for a shape.
_LONGER, _NOISIER = 1.0, math.log(0.3)
_JITTER = 1e-9
_ROOT5 = math.sqrt(5.0)


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Logarithms: of the length scales, of the variances of trend and noise relative to the kernel's."""

    scales: Array
    trend: float
    noise: float
    #: Log posterior density, up to a constant.
    density: float


class GaussianProcess:
    """Conditioned on observations. `values`: one for each row of `features`, with mean 0 and deviation 1."""

    def __init__(self, features: Array, values: Array, groups: Indices, fitted: Hyperparameters) -> None:
        self._inverse_scales = np.exp(-fitted.scales)[groups]
        self._scaled = features * self._inverse_scales
        self._trend_weight = math.exp(fitted.trend)
        self._trend = _trend(features)
        matrix = _matern(_distances(self._scaled, self._scaled)) + self._trend_weight * self._trend @ self._trend.T
        matrix[np.diag_indices_from(matrix)] += math.exp(fitted.noise) + _JITTER
        self._factor = np.linalg.inv(np.linalg.cholesky(matrix))
        self._weights = self._factor.T @ (self._factor @ values)
        self._variance = _variance(values, self._weights)
        #: Estimated standard deviation of the noise of a value.
        self.noise = math.sqrt(self._variance * math.exp(fitted.noise))

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the function, without noise, for each row."""
        trend = _trend(features)
        shared = _matern(_distances(features * self._inverse_scales, self._scaled))
        shared += self._trend_weight * trend @ self._trend.T
        prior = 1.0 + self._trend_weight * np.sum(trend**2, axis=1)
        explained = np.sum((shared @ self._factor.T) ** 2, axis=1)
        return shared @ self._weights, np.sqrt(self._variance * np.maximum(prior - explained, 1e-12))


def fit(features: Array, values: Array, groups: Indices) -> Hyperparameters:
    """The hyperparameters with the greatest posterior density that two local searches find."""
    count = int(groups.max()) + 1 if len(groups) else 0
    scale = _SCALE[0] + 0.5 * math.log(max(count, 1))
    mean = np.append(np.full(count, scale), [_TREND[0], _NOISE[0]])
    deviation = np.append(np.full(count, _SCALE[1]), [_TREND[1], _NOISE[1]])
    noisy = np.append(np.full(count, scale + _LONGER), [_TREND[0], _NOISIER])
    trend = _trend(features)
    trends = trend @ trend.T

    def objective(at: Array) -> tuple[float, Array]:
        loss, slope = _negative_likelihood(features, trends, values, groups, at)
        away = (at - mean) / deviation
        return loss + 0.5 * float(away @ away), slope + away / deviation

    best, loss = min((_minimise(objective, begin) for begin in (mean, noisy)), key=lambda found: found[1])
    return Hyperparameters(best[:-2], float(best[-2]), float(best[-1]), -loss)


def _negative_likelihood(
    features: Array, trends: Array, values: Array, groups: Indices, at: Array
) -> tuple[float, Array]:
    """Minus the log marginal likelihood at these logarithms, and its gradient."""
    scaled, count = features * np.exp(-at[:-2])[groups], len(values)
    squares, weighted, noise = scaled**2, math.exp(at[-2]) * trends, math.exp(at[-1])
    away = _ROOT5 * _apart(scaled, scaled, squares, squares)
    decay = np.exp(-away)
    matrix = (1 + away + away**2 / 3) * decay + weighted
    matrix.flat[:: count + 1] += noise + _JITTER
    factor = np.linalg.inv(np.linalg.cholesky(matrix))
    weights = factor.T @ (factor @ values)
    variance = _variance(values, weights)
    loss = 0.5 * (count + 1) * math.log(variance) - float(np.log(factor.diagonal()).sum())
    inner = factor.T @ factor - weights[:, None] * weights / variance
    slopes = inner * (5 / 3) * (1 + away) * decay
    # for each feature half the sum over pairs of slope times squared distance, by products of matrices
    each = slopes.sum(axis=1) @ squares - (scaled * (slopes @ scaled)).sum(axis=0)
    slope = np.empty(len(at))
    slope[:-2] = np.bincount(groups, each, minlength=len(at) - 2)
    slope[-2:] = 0.5 * float((inner * weighted).sum()), 0.5 * noise * float(inner.trace())
    return loss, slope


def _variance(values: Array, weights: Array) -> float:
    """The kernel's variance, as if there were one more observation of 1."""
    return (float(values @ weights) + 1.0) / (len(values) + 1.0)


def _trend(features: Array) -> Array:
    """The basis in which a sum of parabolas along the axes is linear."""
    centred = 2 * features - 1
    parts = np.concatenate([centred, centred**2 - 1 / 3], axis=1)
    return np.asarray(parts / math.sqrt(max(features.shape[1], 1)))


def _distances(left: Array, right: Array) -> Array:
    return _apart(left, right, left**2, right**2)


def _apart(left: Array, right: Array, left_squares: Array, right_squares: Array) -> Array:
    squares = left_squares.sum(axis=1)[:, None] + right_squares.sum(axis=1)[None, :] - 2 * left @ right.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def _matern(distances: Array) -> Array:
    away = _ROOT5 * distances
    return np.asarray((1 + away + away**2 / 3) * np.exp(-away))


# A local minimum of a smooth function: the BFGS method with backtracking.
# J. Nocedal, S. J. Wright, "Numerical Optimization", 2006, chapters 3 and 6.

#: Value and gradient at a place.
_Objective = Callable[[Array], tuple[float, Array]]

#: Bounds of each coordinate, all of them logarithms.
_LEAST, _MOST = -15.0, 6.0
#: The longest step along a coordinate, and the share of it below which the search ends.
_LONGEST, _SHORTEST = 2.0, 1e-3
#: Improvement below which the search ends.
_ENOUGH = 1e-5
_STEPS = 40


def _minimise(objective: _Objective, start: Array) -> tuple[Array, float]:
    """The place reached from `start`, and the value there."""
    at, (value, slope) = start, objective(start)
    inverse = np.eye(len(start))
    for _ in range(_STEPS):
        there, new_value, new_slope = _step(objective, at, value, slope, inverse)
        if new_value >= value - _ENOUGH:
            return (there, new_value) if new_value < value else (at, value)
        inverse = _updated(inverse, there - at, new_slope - slope)
        at, value, slope = there, new_value, new_slope
    return at, value


def _step(objective: _Objective, at: Array, value: float, slope: Array, inverse: Array) -> tuple[Array, float, Array]:
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
