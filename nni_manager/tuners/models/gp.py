"""GPTuner: Bayesian optimization with a Gaussian process, by scikit-learn.

The process has a Matérn kernel, fitted again for each proposal, with one length for all features: with one per feature,
the few results of a search mislead it. Its acquisition is the expected improvement, the confidence bound or the
probability of improvement: J. Snoek, H. Larochelle, R. P. Adams, "Practical Bayesian Optimization of Machine Learning
Algorithms", NeurIPS 2012. Running trials are assumed to have the result that the process expects, the kriging believer:
D. Ginsbourger, R. Le Riche, L. Carraro, "Kriging Is Well-Suited to Parallelize Optimization", 2010. Trials that failed,
were stopped early or had no finite result count like the worst one, like infeasible trials in X. Song et al., "The
Vizier Gaussian Process Bandit Algorithm", arXiv:2408.11527.

A proposal takes between a tenth of a second and some seconds.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt

from nni_manager.domain.metrics import OptimizeModeName
from nni_manager.tuners.models.model_search import Model, ModelTuner

if TYPE_CHECKING:
    from nni_manager.tuners.models.encoding import Array

#: Bounds of the lengths, in ranges.
_LENGTHS = (0.05, 20.0)
_NOISE = (1e-8, 0.1)
#: Maximum number of points at a time, to limit memory.
_PIECE = 10_000


class GPTuner(ModelTuner):
    """`kappa`: weight of the uncertainty in `ucb`; `xi`: minimum improvement in `ei` and `poi`; `nu`: of the kernel;
    `alpha`: minimum variance of the noise."""

    def __init__(
        self,
        *,
        optimize_mode: OptimizeModeName = "maximize",
        utility: Literal["ei", "ucb", "poi"] = "ei",
        kappa: Annotated[float, Ge(0)] = 5.0,
        xi: float = 0.0,
        nu: Annotated[float, Gt(0)] = 2.5,
        alpha: Annotated[float, Gt(0)] = 1e-6,
        cold_start_num: Annotated[int, Ge(0)] = 10,
        selection_num_warm_up: Annotated[int, Ge(1)] = 100_000,
        selection_num_starting_points: Annotated[int, Ge(1)] = 250,
        seed: Annotated[int, Ge(0)] | None = None,
    ) -> None:
        super().__init__(
            optimize_mode=optimize_mode,
            seed=seed,
            starts=cold_start_num,
            candidates=selection_num_warm_up,
            climbers=selection_num_starting_points,
        )
        self._nu = nu
        self._alpha = alpha
        self._utility = utility
        self._kappa = kappa
        self._xi = xi

    def fit(self, features: Array, losses: Array, running: Array) -> Model:
        import numpy
        from sklearn.gaussian_process.kernels import Matern, WhiteKernel

        kernel = Matern(1.0, length_scale_bounds=_LENGTHS, nu=self._nu) + WhiteKernel(1e-4, noise_level_bounds=_NOISE)
        process = self._process(kernel, "fmin_l_bfgs_b").fit(features, losses)
        if len(running):
            believed = numpy.concatenate([losses, process.predict(running)])
            features = numpy.concatenate([features, running])
            process = self._process(process.kernel_, None).fit(features, believed)
        best = float(process.predict(features).min())  # with noise, the minimum result may be luck
        return partial(self._acquisition, process, best)

    def _process(self, kernel: Any, optimizer: str | None) -> Any:
        from sklearn.gaussian_process import GaussianProcessRegressor

        return GaussianProcessRegressor(kernel, alpha=self._alpha, normalize_y=True, optimizer=optimizer)

    def _acquisition(self, process: Any, best: float, features: Array) -> Array:
        import numpy

        pieces = (features[start : start + _PIECE] for start in range(0, len(features), _PIECE))
        found = [process.predict(piece, return_std=True) for piece in pieces]
        return numpy.concatenate([self._promise(mean, numpy.maximum(spread, 1e-12), best) for mean, spread in found])

    def _promise(self, mean: Array, deviation: Array, best: float) -> Array:
        """The acquisition of points, from their mean loss and its standard deviation."""
        import numpy
        from scipy.special import ndtr

        if self._utility == "ucb":
            return self._kappa * deviation - mean
        gain = best - mean - self._xi
        ratio = gain / deviation
        if self._utility == "poi":
            return ndtr(ratio)
        return gain * ndtr(ratio) + deviation * numpy.exp(-(ratio**2) / 2) / numpy.sqrt(2 * numpy.pi)
