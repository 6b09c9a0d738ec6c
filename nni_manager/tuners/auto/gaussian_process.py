"""Gaussian-process regression with a Matérn-5/2 kernel and one length scale for each dimension.

Length scales and noise are those of greatest posterior density; the prior of length scales grows with the square root
of the number of dimensions (C. Hvarfner, E. O. Hellsten, L. Nardi, "Vanilla Bayesian Optimization Performs Great in
High Dimensions", 2024). The variance is integrated out. See C. E. Rasmussen, C. K. I. Williams, "Gaussian Processes for
Machine Learning", 2006, chapter 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nni_manager.tuners.auto.lattice import Array

#: Prior of the logarithms: of length scales (for one dimension), of noise variance relative to the signal's.
_SCALE_MEAN, _SCALE_DEVIATION = math.log(0.5), 0.9
_NOISE_MEAN, _NOISE_DEVIATION = math.log(1e-4), 2.5
_LEAST, _MOST = -15.0, 6.0
_ROOT5 = math.sqrt(5.0)


@dataclass(frozen=True)
class Hyperparameters:
    """Logarithms of the length scales, and of the noise variance relative to the signal's."""

    scales: Array
    noise: float
    #: Log posterior density, up to a constant.
    density: float


class GaussianProcess:
    """Conditioned on observations; `values`: with mean 0 and deviation 1."""

    def __init__(self, features: Array, values: Array, groups: Array, fitted: Hyperparameters) -> None:
        self._inverse_scales = np.exp(-fitted.scales)[groups]
        self._scaled = features * self._inverse_scales
        correlation = _matern(_distances(self._scaled, self._scaled))
        correlation[np.diag_indices_from(correlation)] += math.exp(fitted.noise) + 1e-9
        self._factor = np.linalg.inv(np.linalg.cholesky(correlation))
        self._weights = self._factor.T @ (self._factor @ values)
        self._variance = (float(values @ self._weights) + 1.0) / (len(values) + 1.0)

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the function, without noise."""
        correlation = _matern(_distances(features * self._inverse_scales, self._scaled))
        explained = np.sum((correlation @ self._factor.T) ** 2, axis=1)
        return correlation @ self._weights, np.sqrt(self._variance * np.maximum(1.0 - explained, 1e-12))


def fit(features: Array, values: Array, groups: Array) -> Hyperparameters:
    """The hyperparameters of greatest posterior density."""
    count = int(groups.max()) + 1 if len(groups) else 0
    mean = np.append(np.full(count, _SCALE_MEAN + 0.5 * math.log(max(count, 1))), _NOISE_MEAN)
    deviation = np.append(np.full(count, _SCALE_DEVIATION), _NOISE_DEVIATION)

    def objective(at: Array) -> tuple[float, Array]:
        loss, slope = _negative_likelihood(features, values, groups, at)
        away = (at - mean) / deviation
        return loss + 0.5 * float(away @ away), slope + away / deviation

    best, loss = minimise(objective, mean)
    return Hyperparameters(best[:-1], float(best[-1]), -loss)


def _negative_likelihood(features: Array, values: Array, groups: Array, at: Array) -> tuple[float, Array]:
    """Minus the log marginal likelihood at these logarithms, and its gradient."""
    scaled = features * np.exp(-at[:-1])[groups]
    distances, noise, count = _distances(scaled, scaled), math.exp(at[-1]), len(values)
    matrix = _matern(distances)
    matrix[np.diag_indices(count)] += noise + 1e-9
    factor = np.linalg.inv(np.linalg.cholesky(matrix))
    weights = factor.T @ (factor @ values)
    variance = (float(values @ weights) + 1.0) / (count + 1.0)
    loss = 0.5 * (count + 1) * math.log(variance) - float(np.sum(np.log(np.diag(factor))))
    inner = factor.T @ factor - np.outer(weights, weights) / variance
    slopes = inner * (5 / 3) * (1 + _ROOT5 * distances) * np.exp(-_ROOT5 * distances)
    # the sum over pairs of slope times squared distance, for each feature, by products of matrices
    each = np.sum(slopes, axis=1) @ scaled**2 - np.sum(scaled * (slopes @ scaled), axis=0)
    scales = np.bincount(groups, each, minlength=len(at) - 1)
    return loss, np.append(scales, 0.5 * noise * np.trace(inner))


def _distances(left: Array, right: Array) -> Array:
    squares = np.sum(left**2, axis=1)[:, None] + np.sum(right**2, axis=1)[None, :] - 2 * left @ right.T
    return np.sqrt(np.maximum(squares, 0.0))


def _matern(distances: Array) -> Array:
    away = _ROOT5 * distances
    return (1 + away + away**2 / 3) * np.exp(-away)


def minimise(objective: Callable[[Array], tuple[float, Array]], start: Array, steps: int = 40) -> tuple[Array, float]:
    """A local minimum by the BFGS method with backtracking (J. Nocedal, S. J. Wright, "Numerical Optimization")."""
    at, (loss, slope) = start, objective(start)
    inverse = np.eye(len(start))
    for _ in range(steps):
        direction = -inverse @ slope
        descent = float(direction @ slope)
        direction *= min(1.0, 2.0 / max(float(np.max(np.abs(direction))), 1e-12))
        size = 1.0
        while True:
            there = np.clip(at + size * direction, _LEAST, _MOST)
            new_loss, new_slope = objective(there)
            if new_loss <= loss + 1e-4 * size * min(descent, 0.0) or size < 1e-3:
                break
            size /= 3
        if new_loss >= loss - 1e-5:
            return (there, new_loss) if new_loss < loss else (at, loss)
        moved, turned = there - at, new_slope - slope
        product = float(moved @ turned)
        if product > 1e-10:
            rest = np.eye(len(at)) - np.outer(moved, turned) / product
            inverse = rest @ inverse @ rest.T + np.outer(moved, moved) / product
        at, loss, slope = there, new_loss, new_slope
    return at, loss
