"""Proposals from a model of all results."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from nni_manager.domain.space.search_space import Key, SearchSpace
from nni_manager.tuners.auto import acquisition, gaussian_process, warping
from nni_manager.tuners.auto.gaussian_process import GaussianProcess, Hyperparameters
from nni_manager.tuners.auto.lattice import Array, Lattice
from nni_manager.tuners.learning import Observation, Units


class Model:
    def __init__(self, space: SearchSpace) -> None:
        self.lattice = Lattice(space)
        self._fitted: tuple[int, Hyperparameters, warping.Warp] | None = None

    def suggest(self, observed: Sequence[Observation], running: Sequence[Units], source: random.Random) -> dict[Key, float]:
        generator = np.random.default_rng(source.getrandbits(64))
        rows = self.lattice.rows([one.units for one in observed])
        losses = np.array([one.loss for one in observed])
        fitted, warp = self._fit(rows, losses)
        values = warp(losses)
        groups = self.lattice.groups
        features = self.lattice.features(rows)
        process = GaussianProcess(features, values, groups, fitted)
        known, best = rows, float(np.min(process.predict(features)[0]))
        if running:
            pending = self.lattice.rows(running)
            believed, _ = process.predict(self.lattice.features(pending))
            known = np.concatenate([rows, pending])
            process = GaussianProcess(self.lattice.features(known), np.concatenate([values, believed]), groups, fitted)
            best = min(best, float(np.min(believed)))
        mean_known, _ = process.predict(self.lattice.features(known))
        elites = known[np.argsort(mean_known, kind="stable")[:10]]
        seen = {row.tobytes() for row in self.lattice.settle(known)}

        def score(candidate: Array) -> Array:
            mean, deviation = process.predict(self.lattice.features(candidate))
            scores = acquisition.log_expected_improvement(mean, deviation, best)
            repeated = np.array([row.tobytes() in seen for row in candidate])
            return np.where(repeated, scores - 1e6, scores)

        row = acquisition.best_row(self.lattice, score, elites, generator, count=1024, rounds=5)
        return self.lattice.units(row)

    def _fit(self, rows: Array, losses: Array) -> tuple[Hyperparameters, warping.Warp]:
        count = len(losses)
        if self._fitted is None or self._fitted[0] != count:
            features = self.lattice.features(rows)
            best = None
            for warp in warping.choices(losses):
                found = gaussian_process.fit(features, warp(losses), self.lattice.groups)
                density = found.density + warp.log_slope
                if best is None or density > best[0]:
                    best = density, found, warp
            assert best is not None
            self._fitted = count, best[1], best[2]
        return self._fitted[1], self._fitted[2]
