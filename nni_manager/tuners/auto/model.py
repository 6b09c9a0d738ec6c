"""Proposals from a model: a Gaussian process of all results, and the place with the greatest expected improvement.

Half of the proposals are searched near the best results, in a neighbourhood that shrinks as in annealing: a trust
region (D. Eriksson et al., "Scalable Global Optimization via Local Bayesian Optimization", 2019). Running trials count
with the model's expectation as their result, the kriging believer (D. Ginsbourger, R. Le Riche, L. Carraro, "Kriging Is
Well-Suited to Parallelize Optimization", 2010). Failed trials count as the worst result.

Losses are transformed by the scale, of several, with the greatest density of the losses themselves: the density of the
transformed losses times the slope of the scale (E. Snelson, C. E. Rasmussen, Z. Ghahramani, "Warped Gaussian
Processes", 2003). A logarithm that resolves less than the noise of the results is not considered.

Where results are noisy, many proposals are for the place of the best expected result, instead of the greatest expected
improvement: then the trial with the best result is good by more than luck.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from nni_manager.domain.space.search_space import SearchSpace
from nni_manager.tuners.auto import acquisition, gaussian_process
from nni_manager.tuners.auto.gaussian_process import GaussianProcess, Hyperparameters
from nni_manager.tuners.auto.lattice import Array, Lattice
from nni_manager.tuners.learning import Units

#: Share of proposals that are searched near the best results.
_NEAR = 0.5
#: Share of proposals for the best expected result, for noise of one deviation of all results; and the greatest share.
_FOR_BEST, _FOR_BEST_MOST = 2.0, 0.9
#: Number of best rows around which candidates are drawn.
_ELITES = 10
#: Up to this number of results, hyperparameters are fitted again after each; then after every such number.
_FIT_EACH, _FIT_EVERY = 64, 8


class Model:
    """Proposals depend only on ended and running trials, and on `source`."""

    def __init__(self, space: SearchSpace) -> None:
        self._lattice = Lattice(space)
        #: Number of results of the last fit, and the offset of their scale.
        self._fitted: tuple[int, Hyperparameters, float | None] | None = None

    def suggest(self, ended: Sequence[tuple[Units, float]], running: Sequence[Units], source: random.Random) -> Units:
        """The places of a proposal. `ended`: with the loss of each, infinite for a failure; at least one is finite."""
        rows = self._lattice.rows([units for units, _ in ended])
        losses = np.array([loss for _, loss in ended])
        generator = np.random.default_rng(source.getrandbits(64))
        return self._lattice.units(self._best_row(rows, losses, self._lattice.rows(running), generator))

    def _best_row(self, rows: Array, losses: Array, running: Array, generator: np.random.Generator) -> Array:
        lattice = self._lattice
        process, known = self._process(rows, losses, running)
        expected, _ = process.predict(lattice.features(rows))  # of running trials there is only hope
        elites, best = rows[np.argsort(expected, kind="stable")[:_ELITES]], float(np.min(expected))
        seen = {row.tobytes() for row in lattice.settle(known)}
        is_for_best = generator.random() < min(_FOR_BEST * process.noise, _FOR_BEST_MOST)

        def score(candidates: Array) -> Array:
            mean, deviation = process.predict(lattice.features(candidates))
            improvement = -mean if is_for_best else acquisition.log_expected_improvement(mean, deviation, best)
            repeated = np.array([row.tobytes() in seen for row in candidates])
            return np.where(repeated, -np.inf, improvement)

        if generator.random() < _NEAR:
            return acquisition.near(lattice, elites, score, generator, len(rows))
        return acquisition.anywhere(lattice, elites, score, generator)

    def _process(self, rows: Array, losses: Array, running: Array) -> tuple[GaussianProcess, Array]:
        """The process of all results and of the expectations for running trials; and the rows of both."""
        fitted, offset = self._fit(rows, losses)
        values, groups = _Warp(losses, offset).values, self._lattice.groups
        process = GaussianProcess(self._lattice.features(rows), values, groups, fitted)
        if not len(running):
            return process, rows
        believed, _ = process.predict(self._lattice.features(running))
        known = np.concatenate([rows, running])
        features = self._lattice.features(known)
        return GaussianProcess(features, np.concatenate([values, believed]), groups, fitted), known

    def _fit(self, rows: Array, losses: Array) -> tuple[Hyperparameters, float | None]:
        """Hyperparameters and scale. They only depend on the first results, not on when there was a proposal."""
        count = len(losses) if len(losses) <= _FIT_EACH else len(losses) // _FIT_EVERY * _FIT_EVERY
        if not np.isfinite(losses[:count]).any():
            count = len(losses)
        if self._fitted is None or self._fitted[0] != count:
            self._fitted = count, *self._best_fit(rows[:count], losses[:count])
        return self._fitted[1], self._fitted[2]

    def _best_fit(self, rows: Array, losses: Array) -> tuple[Hyperparameters, float | None]:
        features, groups = self._lattice.features(rows), self._lattice.groups
        plain = _Warp(losses, None)
        fitted = gaussian_process.fit(features, plain.values, groups)
        noise = GaussianProcess(features, plain.values, groups, fitted).noise * plain.deviation
        most = fitted.density + plain.log_slope
        chosen: tuple[Hyperparameters, float | None] = fitted, None
        for offset in (offset for offset in _OFFSETS if offset >= _RESOLVED * noise):
            warp = _Warp(losses, offset)
            fitted = gaussian_process.fit(features, warp.values, groups)
            if fitted.density + warp.log_slope > most:
                most, chosen = fitted.density + warp.log_slope, (fitted, offset)
        return chosen


#: Offsets of the logarithm, in spreads of the better half of the losses; and the least of them, in deviations of noise.
_OFFSETS = (1.0, 0.1, 0.01)
_RESOLVED = 2.0
#: A loss that is more than this number of spreads above the better half counts as that bad.
_WORST = 5.0


class _Warp:
    """A scale for the given losses, which it maps to mean 0 and deviation 1. Infinite ones count as the worst.

    `offset`: of the logarithm; None: without a logarithm.
    """

    def __init__(self, losses: Array, offset: float | None) -> None:
        finite = losses[np.isfinite(losses)]
        least, middle = float(np.min(finite)), float(np.median(finite))
        # if the better half is constant, any spread
        spread = max(middle - least, 1e-12 * max(abs(middle), abs(least), 1e-288))
        known = np.where(np.isfinite(losses), losses, float(np.max(finite)))
        relative = np.minimum((known - least) / spread, _WORST)
        bent = relative if offset is None else np.log(relative + offset)
        #: Standard deviation of the losses before the last scaling, to 1.
        self.deviation = deviation = max(float(np.std(bent)), 1e-12)
        #: The losses on this scale.
        self.values: Array = (bent - float(np.mean(bent))) / deviation
        slopes = 0.0 if offset is None else -float(np.sum(np.log(relative + offset)))
        #: Sum of the logarithms of the scale's slope at each loss, up to a constant of all scales of these losses.
        self.log_slope = slopes - len(losses) * float(np.log(deviation))
