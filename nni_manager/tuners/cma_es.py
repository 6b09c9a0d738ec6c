"""CmaEs: covariance matrix adaptation, with the library behind Optuna's sampler of that name.

The numbers that every trial has are drawn from a normal distribution, which each generation of results moves, scales
and rotates: N. Hansen, "The CMA Evolution Strategy: A Tutorial", arXiv:1604.00772. TPE draws choices, and dimensions
that exist only in one branch of a nested choice, from the same results; with fewer than two such numbers, it draws
everything. Optuna's sampler stores its distribution with its trials. Here it is computed from the results alone, in
their order, so that a restarted tuner continues with the same one.

Imported results determine the first distribution: M. Nomura et al., "Warm Starting CMA-ES for Hyperparameter
Optimization", AAAI 2021. Selection uses ranks, so a solution that cannot be evaluated ranks last: trials that failed,
were stopped early or had no finite result are members of their generation, worse than all others. A generation is drawn
as a whole, so concurrent trials need no made-up results; a result that arrives after its generation is complete belongs
to the next one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from nni_manager.domain.metrics import OptimizeModeName
from nni_manager.domain.space.dimension import Choice
from nni_manager.domain.space.search_space import Key
from nni_manager.tuners.contract import Data, Pending, Result
from nni_manager.tuners.learning import LearningTuner, Units
from nni_manager.tuners.optuna_tpe import TPE

if TYPE_CHECKING:
    from cmaes import CMA

#: Standard deviation of the first generation, as a share of the range.
_FIRST_STEP = 0.25
#: Share of the imported results that count as good, and their minimum number.
_GOOD = 0.1
_ENOUGH = 10


class CmaEs(LearningTuner):
    """`population_size`: trials of a generation; None: 4 + 3 ln(n) for n numbers, as in the tutorial."""

    def __init__(
        self,
        *,
        optimize_mode: OptimizeModeName = "minimize",
        population_size: Annotated[int, Ge(2)] | None = None,
        seed: Annotated[int, Ge(0)] | None = None,
    ) -> None:
        super().__init__(optimize_mode=optimize_mode, seed=seed)
        self._size = population_size
        #: Keys of the numbers that are drawn here, and the tuner that draws everything else.
        self._numbers: list[Key] = []
        self._others = TPE(optimize_mode=optimize_mode, seed=self.seed)
        self._cma: CMA | None = None
        self._told = 0

    def update_search_space(self, search_space: object) -> None:
        super().update_search_space(search_space)
        assert isinstance(search_space, Mapping)
        places = self.space.places
        numbers = [place.key for place in places if not place.parent and not isinstance(place.dimension, Choice)]
        self._numbers = numbers if len(numbers) > 1 else []
        self._others.update_search_space(self._without_numbers(search_space))

    def learn(self, result: Result) -> None:
        super().learn(result)
        self._others.learn(replace(result, parameters=self._without_numbers(result.parameters)))

    def adopt(self, pending: Pending) -> None:
        super().adopt(pending)
        self._others.adopt(replace(pending, parameters=self._without_numbers(pending.parameters)))

    def import_data(self, data: Data) -> None:
        super().import_data(data)
        self._others.import_data(
            [{**entry, "parameter": self._without_numbers(entry.get("parameter"))} for entry in data]
        )

    def withdraw(self, parameter_ids: Sequence[int]) -> None:
        super().withdraw(parameter_ids)
        self._others.withdraw(parameter_ids)

    def forget(self) -> None:
        self._cma, self._told = None, 0

    def suggest(self, parameter_id: int, source: random.Random) -> dict[str, object]:
        drawn = self._drawn(source) if self._numbers else {}
        others = self._others.propose(parameter_id) if len(drawn) < len(self.space.places) else {}
        numbers = {
            place.name: place.dimension.quantile(drawn[place.key]) for place in self.space.places if place.key in drawn
        }
        return {place.name: {**others, **numbers}[place.name] for place in self.space.places if not place.parent}

    def _without_numbers(self, group: object) -> object:
        """The part of a search space, or of parameters, that TPE draws."""
        ours = {name for (name,) in self._numbers}
        return {key: value for key, value in group.items() if key not in ours} if isinstance(group, Mapping) else group

    def _drawn(self, source: random.Random) -> dict[Key, float]:
        cma = self._caught_up()
        cma.reseed_rng(source.getrandbits(32))
        return dict(zip(self._numbers, map(float, cma.ask()), strict=True))

    def _caught_up(self) -> CMA:
        """The distribution after all complete generations."""
        results = self.ended[self.imported :]
        self._cma = self._cma or self._first()
        size = self._cma.population_size
        while self._told + size <= len(results):
            generation = results[self._told : self._told + size]
            self._told += size
            if any(loss < math.inf for _, loss in generation):
                self._cma.tell([(self._point(units), loss) for units, loss in generation])
        return self._cma

    def _first(self) -> CMA:
        """The first distribution: around the best imported results, or the middle."""
        import numpy
        from cmaes import CMA, get_warm_start_mgd

        count = len(self._numbers)
        mean, step, turned = numpy.full(count, 0.5), _FIRST_STEP, None
        if self.imported >= _ENOUGH:
            known = [(self._point(one.units), one.loss) for one in self.observed[: self.imported]]
            mean, step, turned = get_warm_start_mgd(known, gamma=_GOOD)
        bounds = numpy.tile([0.0, 1.0], (count, 1))
        return CMA(mean=mean, sigma=step, bounds=bounds, cov=turned, population_size=self._size, seed=0)

    def _point(self, units: Units) -> Any:
        import numpy

        return numpy.array([units[key] for key in self._numbers])
