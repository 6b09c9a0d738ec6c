"""BOHB: Hyperband with new configurations drawn near good ones.

S. Falkner, A. Klein, F. Hutter, "BOHB: Robust and Efficient Hyperparameter Optimization at Scale", ICML 2018, Algorithm
2: of the results with the largest budget that has enough of them, the best `top_n_percent` form one density, the others
another. Of `num_samples` points near good ones, the one with the greatest quotient is proposed. A share of
`random_fraction` is drawn from the search space. Budgets are ``max_budget * eta**-k``, not below `min_budget`. The
brackets are Hyperband's, and the next one begins when there is room for a trial, as in section 4.2.

Trials that failed, were stopped or had no finite result count as worse than all others, as in the authors'
implementation (https://github.com/automl/HpBandSter). Imported results, and those of a user's parameters, without a
`TRIAL_BUDGET` count as having the largest one, as in NNI.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt, Le

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.metrics import OptimizeModeName
from nni_manager.domain.space.dimension import Choice
from nni_manager.domain.space.search_space import PlacedDimension
from nni_manager.tuners.hyperband import BracketTuner

if TYPE_CHECKING:
    from numpy.random import Generator

#: One number per dimension: a place in the unit interval, the index of an option; NaN: the dimension does not exist.
Point = list[float]


class BOHB(BracketTuner):
    """`min_points_in_model`: required number of results with one budget, at least one more than dimensions;
    `bandwidth_factor`: how much wider than the density points are drawn."""

    def __init__(
        self,
        *,
        optimize_mode: OptimizeModeName = "maximize",
        min_budget: Annotated[float, Ge(1e-3), Le(1e6)] = 1,
        max_budget: Annotated[float, Ge(1e-3), Le(1e6)] = 3,
        eta: Annotated[int, Ge(2)] = 3,
        min_points_in_model: Annotated[int, Ge(0)] | None = None,
        top_n_percent: Annotated[int, Ge(1), Le(99)] = 15,
        num_samples: Annotated[int, Ge(1)] = 64,
        random_fraction: Annotated[float, Ge(0), Le(1)] = 1 / 3,
        bandwidth_factor: Annotated[float, Gt(0)] = 3,
        min_bandwidth: Annotated[float, Gt(0)] = 1e-3,
        seed: Annotated[int, Ge(0)] | None = None,
    ) -> None:
        if min_budget > max_budget:
            raise InvalidInput(
                f"classArgs.min_budget: {min_budget:g} is greater than max_budget {max_budget:g}; swap them."
            )
        super().__init__(
            optimize_mode=optimize_mode, least=min_budget, most=max_budget, eta=eta, serial=False, seed=seed
        )
        self._min_points = min_points_in_model or 0
        self._good_share = top_n_percent / 100
        self._samples = num_samples
        self._random_fraction = random_fraction
        self._factor = bandwidth_factor
        self._min_bandwidth = min_bandwidth
        #: Configuration, budget and loss of ended trials, of all search spaces.
        self._results: list[tuple[object, float, float]] = []
        #: Budget → results with it in this search space.
        self._known: dict[float, list[tuple[Point, float]]] = {}

    def update_search_space(self, search_space: object) -> None:
        super().update_search_space(search_space)
        self._known = {}
        for result in self._results:
            self._note(*result)

    def observe(self, config: object, budget: float, loss: float) -> None:
        self._results.append((config, budget, loss))
        self._note(config, budget, loss)

    def sample(self, parameter_id: int) -> dict[str, object]:
        # the largest one with a model: with at least ``N_min + 2`` results
        budget = max((budget for budget, known in self._known.items() if len(known) >= self._least + 2), default=None)
        if budget is None:
            return super().sample(parameter_id)
        import numpy

        text = hashlib.sha256(f"{self.seed}/{parameter_id}".encode()).digest()
        source = numpy.random.default_rng(int.from_bytes(text[:8], "big"))
        if source.random() < self._random_fraction:
            return super().sample(parameter_id)
        return self._near_good(self._known[budget], source)

    def state(self) -> dict[str, object]:
        return {**super().state(), "learned": sum(map(len, self._known.values()))}

    def _note(self, config: object, budget: float, loss: float) -> None:
        picks = self.space.picks(config)
        if picks is not None:
            point = [
                _coordinate(place, picks[place.key]) if place.key in picks else math.nan for place in self.space.places
            ]
            self._known.setdefault(budget, []).append((point, loss))

    @property
    def _least(self) -> int:
        """N_min: minimum number of points in each density."""
        return max(self._min_points, len(self.space.places) + 1)

    def _near_good(self, known: list[tuple[Point, float]], source: Generator) -> dict[str, object]:
        import numpy

        from nni_manager.tuners.kernel_density import Density, filled

        ranked = numpy.array([point for point, _ in sorted(known, key=lambda result: result[1])])
        good = max(self._least, int(self._good_share * len(ranked)))
        bad = max(self._least, len(ranked) - good)
        sizes = [_size(place) for place in self.space.places]
        better, worse = (
            Density(filled(points, sizes, source), sizes, self._min_bandwidth)
            for points in (ranked[:good], ranked[-bad:])
        )
        drawn = better.draw(self._samples, self._factor, source)
        best = drawn[numpy.argmax(better.logarithm(drawn) - worse.logarithm(drawn))]
        values = dict(zip((place.key for place in self.space.places), best.tolist(), strict=True))
        return self.space.assemble(lambda place: _value(place, values[place.key]))


def _size(place: PlacedDimension) -> int:
    return place.dimension.size if isinstance(place.dimension, Choice) else 0


def _coordinate(place: PlacedDimension, value: Any) -> float:
    dimension = place.dimension
    return float(dimension.index(value)) if isinstance(dimension, Choice) else dimension.unit(value)


def _value(place: PlacedDimension, coordinate: float) -> object:
    dimension = place.dimension
    return dimension.options[int(coordinate)] if isinstance(dimension, Choice) else dimension.quantile(coordinate)
