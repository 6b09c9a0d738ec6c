"""Anneal: simulated annealing as hyperopt describes it, by J. Bergstra.

Each dimension is drawn near its value in one of the best trials: mostly the best, half as often the next one, and so on
(a geometric distribution). The neighbourhood of that value shrinks with the number n of results that the dimension has,
as ``1 / (1 + n / 10)``: for a number it is that share of the range (normal distribution: of its standard deviation),
for a choice the probability that it is drawn again. A dimension without a result, in a branch that was never taken, is
drawn from the search space. See J. Bergstra, D. Yamins, D. D. Cox, "Making a Science of Model Search", ICML 2013, and
hyperopt's documentation of ``anneal.suggest``.

There, failed trials are left out, and trials that were stopped early are not among the best. Here neither counts, nor
does a result that is not a finite number. Concurrent trials differ by chance; with `parallel_optimize` they also count
as results of a made-up value, the constant liar (D. Ginsbourger, R. Le Riche, L. Carraro, "Kriging Is Well-Suited to
Parallelize Optimization", 2010).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated

from annotated_types import Ge

from nni_manager.domain.metrics import OptimizeModeName
from nni_manager.domain.space.dimension import Choice, Real
from nni_manager.domain.space.search_space import PlacedDimension
from nni_manager.tuners.learning import LearningTuner, Liar, Observation

#: Mean rank, from 1, of the trial from which a value is taken.
_MEAN_RANK = 2.0
_SHRINKING = 0.1


class Anneal(LearningTuner):
    """`parallel_optimize`: whether running trials count, according to `constant_liar_type`."""

    def __init__(
        self,
        *,
        optimize_mode: OptimizeModeName = "minimize",
        parallel_optimize: bool = False,
        constant_liar_type: Liar = "min",
        seed: Annotated[int, Ge(0)] | None = None,
    ) -> None:
        super().__init__(optimize_mode=optimize_mode, seed=seed)
        self._liar: Liar | None = constant_liar_type if parallel_optimize else None

    def suggest(self, parameter_id: int, source: random.Random) -> dict[str, object]:
        ranked = self._ranked()

        def choose(place: PlacedDimension) -> object:
            near = [observation for observation in ranked if place.key in observation.units]
            unit = _near(place, near, source) if near else source.random()
            return place.dimension.quantile(unit)

        return self.space.assemble(choose)

    def _ranked(self) -> Sequence[Observation]:
        if self._liar is None or not self.observed or not self.running:
            return self.ranked
        lie, count = self.lie(self._liar), len(self.observed)
        lies = [Observation(lie, count + number, units) for number, units in enumerate(self.running)]
        return sorted([*self.ranked, *lies])


def _near(place: PlacedDimension, ranked: Sequence[Observation], source: random.Random) -> float:
    share = 1 / (1 + len(ranked) * _SHRINKING)
    rank = 0
    while source.random() > 1 / _MEAN_RANK and rank < len(ranked) - 1:
        rank += 1
    unit = ranked[rank].units[place.key]
    if isinstance(place.dimension, Choice):
        return source.random() if source.random() < share else unit
    if isinstance(place.dimension, Real) and place.dimension.normal:
        return _normal_near(unit, share, source)
    middle = min(max(unit, share / 2), 1 - share / 2)
    return middle + share * (source.random() - 0.5)


def _normal_near(unit: float, share: float, source: random.Random) -> float:
    """The same within a normal distribution, whose standard deviation shrinks."""
    from statistics import NormalDist  # 5 ms, which most search spaces need not spend

    standard = NormalDist()
    edge = 1e-12  # 0 and 1 are infinitely far away
    return standard.cdf(source.gauss(standard.inv_cdf(min(max(unit, edge), 1 - edge)), share))
