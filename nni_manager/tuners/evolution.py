"""Evolution: tournaments among the best trials choose parents, and mutation creates the next trial.

The first `population_size` trials are drawn from the search space. After that, the population is the `population_size`
best trials so far. The best of a few random members is the parent, and some of its values are changed: a number mostly
by a little, sometimes to any other, a choice to another option. This is the naive evolution of E. Real et al.,
"Large-Scale Evolution of Image Classifiers", ICML 2017, which NNI's tuner of that name refers to, with tournaments of
more than two (E. Real et al., "Regularized Evolution for Image Classifier Architecture Search", AAAI 2019).

There, an individual that cannot be trained is removed at once: trials that failed, were stopped early or had no finite
result are never parents. Concurrent trials have different parents and mutations, so running trials need no made-up
result.
"""

from __future__ import annotations

import random
from typing import Annotated

from annotated_types import Ge

from nni_manager.domain.metrics import OptimizeModeName
from nni_manager.domain.space.dimension import Choice
from nni_manager.domain.space.search_space import PlacedDimension
from nni_manager.tuners.learning import LearningTuner, Units

#: The share of the population in a tournament.
_TOURNAMENT = 0.4
#: Probability that a changing number is drawn again, and otherwise the standard deviation of its change (of the range).
_ANEW = 0.2
_STEP = 0.12


class Evolution(LearningTuner):
    """`population_size`: number of first random trials, and of the best trials that may be parents."""

    def __init__(
        self,
        *,
        optimize_mode: OptimizeModeName = "maximize",
        population_size: Annotated[int, Ge(0)] = 32,
        seed: Annotated[int, Ge(0)] | None = None,
    ) -> None:
        super().__init__(optimize_mode=optimize_mode, seed=seed)
        self._size = population_size

    def suggest(self, parameter_id: int, source: random.Random) -> dict[str, object]:
        population = self.ranked[: self._size]
        # failed ones count as members, too: if all failed, the search continues by chance
        if not population or len(self.ended) < self._size:
            return self.parameters({}, source)
        few = max(2, round(_TOURNAMENT * len(population)))
        parent = min(source.choice(population) for _ in range(few))
        return self.parameters(self._mutated(parent.units, source), source)

    def _mutated(self, parent: Units, source: random.Random) -> Units:
        """The parent's values, with at least one change. A branch that it did not take has none, and is drawn."""
        places = [place for place in self.space.places if place.key in parent]
        if not places:
            return {}
        certain = source.choice(places).key
        changed = {
            place.key: _changed(place, parent[place.key], source)
            for place in places
            if place.key == certain or source.random() < 1 / len(places)
        }
        return {**parent, **changed}


def _changed(place: PlacedDimension, unit: float, source: random.Random) -> float:
    if isinstance(place.dimension, Choice):
        return (unit + source.randrange(1, max(place.dimension.size, 2)) / place.dimension.size) % 1
    if source.random() < _ANEW:
        return source.random()
    moved = abs(unit + source.gauss(0, _STEP)) % 2
    return 2 - moved if moved > 1 else moved  # reflected at the bounds
