"""SMAC: sequential model-based configuration, with a random forest instead of a Gaussian process, by scikit-learn.

F. Hutter, H. Hoos, K. Leyton-Brown, "Sequential Model-Based Optimization for General Algorithm Configuration", LION
2011: the forest's trees disagree where little is known; a local search from the best trials maximizes the expected
improvement by changing one value at a time; some proposals are random. Losses are taken on a logarithmic scale; trials
that failed, were stopped early or had no finite result count like the worst one: M. Lindauer et al., "SMAC3: A
Versatile Bayesian Optimization Package for Hyperparameter Optimization", JMLR 2022. Running trials are assumed to have
the result that the forest expects (the kriging believer of D. Ginsbourger, R. Le Riche, L. Carraro, 2010).

A proposal takes some tenths of a second.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from nni_manager.domain.metrics import OptimizeModeName
from nni_manager.tuners.models.model_search import Model, ModelTuner

if TYPE_CHECKING:
    from nni_manager.tuners.models.encoding import Array

_TREES = 20
#: The share of random proposals (Lindauer et al.).
_RANDOM = 0.08


class SMAC(ModelTuner):
    """`config_dedup`: random proposals are not repeated, either, as long as there are others."""

    def __init__(
        self,
        *,
        optimize_mode: OptimizeModeName = "maximize",
        config_dedup: bool = False,
        seed: Annotated[int, Ge(0)] | None = None,
    ) -> None:
        super().__init__(optimize_mode=optimize_mode, seed=seed, starts=10, candidates=5000, climbers=10)
        self._repeats = not config_dedup

    def suggest(self, parameter_id: int, source: random.Random) -> dict[str, object]:
        if source.random() < _RANDOM:
            drawn = self.parameters({}, source)
            if self._repeats or not self.was_tried(drawn):
                return drawn
        return super().suggest(parameter_id, source)

    def fit(self, features: Array, losses: Array, running: Array) -> Model:
        import numpy

        scaled = _logarithmic(losses)
        forest = self._forest().fit(features, scaled)
        if len(running):
            believed = numpy.concatenate([scaled, forest.predict(running)])
            features = numpy.concatenate([features, running])
            forest = self._forest().fit(features, believed)
        return partial(_expected_improvement, forest, float(forest.predict(features).min()))

    def _forest(self) -> Any:
        from sklearn.ensemble import RandomForestRegressor

        return RandomForestRegressor(_TREES, max_features=5 / 6, min_samples_split=3, random_state=self.seed % 2**32)


def _expected_improvement(forest: Any, best: float, features: Array) -> Array:
    import numpy
    from scipy.special import ndtr

    mean, deviation = _predict(forest, features)
    gain = best - mean
    ratio = gain / deviation
    return gain * ndtr(ratio) + deviation * numpy.exp(-(ratio**2) / 2) / numpy.sqrt(2 * numpy.pi)


def _predict(forest: Any, features: Array) -> tuple[Array, Array]:
    """Mean and standard deviation: between trees, and within their leaves."""
    import numpy

    trees = [one.tree_ for one in forest.estimators_]
    features = numpy.ascontiguousarray(features, dtype=numpy.float32)
    leaves = [tree.apply(features) for tree in trees]  # `forest.apply` adds overhead that takes ten times as long
    means = numpy.stack([tree.value[leaf, 0, 0] for tree, leaf in zip(trees, leaves, strict=True)])
    within = numpy.stack([tree.impurity[leaf] for tree, leaf in zip(trees, leaves, strict=True)])
    return means.mean(axis=0), numpy.sqrt(means.var(axis=0) + within.mean(axis=0) + 1e-12)


def _logarithmic(losses: Array) -> Array:
    """Losses on a logarithmic scale from the minimum, so that good ones are far apart."""
    import numpy

    halved = losses / 2  # so that the difference of the largest numbers is finite
    least, spread = halved.min(), numpy.ptp(halved)
    return numpy.log((halved - least) / spread + 0.05) if spread > 0 else losses
