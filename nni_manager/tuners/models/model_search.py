"""Search with a model of the results: the base of GPTuner and SMAC.

The first trials are spread evenly (a Sobol sequence, shifted by the seed). After that, a model of the results is built
for each proposal, and the point with the greatest acquisition is proposed: of many random points and the best trials,
the most promising are improved step by step. Trials that failed, were stopped early or had no finite result count like
the worst one with a result; running trials like the model's expectation, so that proposals keep apart.

scikit-learn and scipy are imported on first use, as they take a second.
"""

from __future__ import annotations

import math
import random
import warnings
from abc import abstractmethod
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nni_manager.domain.errors import MissingExtra
from nni_manager.domain.metrics import OptimizeModeName
from nni_manager.tuners.learning import LearningTuner, Units

if TYPE_CHECKING:
    from nni_manager.tuners.models.encoding import Array, Encoding

#: With more results than twice this number, only the best and the newest ones are modelled.
_HALF = 200
#: Maximum number of values in the candidates of one proposal: with many results there are fewer candidates.
_WORK = 1_000_000
_ROUNDS = 20


#: The acquisition by a model of the results: features → shape (points,); the greatest is proposed.
Model = Callable[[Any], Any]


class ModelTuner(LearningTuner):
    """`starts`: trials before there is a model; `candidates`: number of random points; the best `climbers` of them, and
    as many of the best trials, are improved."""

    def __init__(
        self, *, optimize_mode: OptimizeModeName, seed: int | None, starts: int, candidates: int, climbers: int
    ) -> None:
        _require_packages(type(self).__name__)
        super().__init__(optimize_mode=optimize_mode, seed=seed)
        self._starts = starts
        self._candidates = candidates
        self._climbers = climbers
        self._encoding: Encoding | None = None

    @abstractmethod
    def fit(self, features: Array, losses: Array, running: Array) -> Model:
        """The model of results and of running trials; shapes (results, features), (results,), (trials, features)."""

    def update_search_space(self, search_space: object) -> None:
        super().update_search_space(search_space)
        self._encoding = None

    def suggest(self, parameter_id: int, source: random.Random) -> dict[str, object]:
        if not self.space.places:
            return {}
        if len(self.observed) < max(self._starts, 1):
            return self.parameters(self._spread(parameter_id), source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a fit that has not converged, which is good enough
            return self._by_model(source)

    def _spread(self, parameter_id: int) -> Units:
        from scipy.stats import qmc

        sequence = qmc.Sobol(len(self.space.places), scramble=False)
        sequence.fast_forward(parameter_id % 4096 + 1)
        shifts = random.Random(f"{self.seed}/start")  # noqa: S311 - no secret
        point = sequence.random(1)[0]
        return {
            place.key: (float(unit) + shifts.random()) % 1 for place, unit in zip(self.space.places, point, strict=True)
        }

    def _by_model(self, source: random.Random) -> dict[str, object]:
        import numpy

        from nni_manager.tuners.models.encoding import Encoding

        encoding = self._encoding = self._encoding or Encoding(self.space)
        chance = numpy.random.default_rng(source.getrandbits(64))
        ended, losses = self._modelled()
        features = encoding.features(encoding.snapped(encoding.points([*ended, *self.running])))
        model = self.fit(features[: len(ended)], numpy.array(losses), features[len(ended) :])
        return self._first_new(self._promising(encoding, model, chance), source)

    def _modelled(self) -> tuple[list[Units], list[float]]:
        """The results for the model; bad ones count like the worst."""
        ended = self.ended
        if len(ended) > 2 * _HALF:
            best = sorted(ended[:-_HALF], key=lambda one: one[1])[:_HALF]
            ended = [*best, *ended[-_HALF:]]
        worst = max((loss for _, loss in ended if loss < math.inf), default=0.0)
        return [units for units, _ in ended], [min(loss, worst) for _, loss in ended]

    def _promising(self, encoding: Encoding, model: Model, chance: Any) -> list[Units]:
        """Points by their acquisition, greatest first."""
        import numpy

        def gain(points: Array) -> Array:
            return model(encoding.features(points))

        count = max(min(self._candidates, _WORK // (len(self.ended) + len(self.running) + 1)), 100)
        drawn = encoding.snapped(chance.random((count, len(self.space.places))))
        best = encoding.points([one.units for one in self.ranked[: self._climbers]])
        first = drawn[numpy.argsort(-gain(drawn), kind="stable")[: self._climbers]]
        points = encoding.snapped(numpy.concatenate([first, best]))
        gains = gain(points)
        for number in range(2 * _ROUNDS):
            step = 0.1 * 0.75 ** (number // 2)
            moved = encoding.shaken(points, step, chance) if number % 2 else encoding.neighbours(points, chance)
            new = gain(moved)
            better = new > gains
            points[better], gains[better] = moved[better], new[better]
        return [encoding.units(points[row]) for row in numpy.argsort(-gains, kind="stable")]

    def was_tried(self, parameters: dict[str, object]) -> bool:
        """Whether a trial with these parameters has ended or runs."""
        units = self.units(parameters)
        return any(units == one for one, _ in self.ended) or units in self.running

    def _first_new(self, found: list[Units], source: random.Random) -> dict[str, object]:
        """The first untried point, if any; otherwise a drawn one."""
        for units in found:
            proposal = self.parameters(units, source)
            if not self.was_tried(proposal):
                return proposal
        return self.parameters({}, source)


def _require_packages(tuner: str) -> None:
    """Raises MissingExtra."""
    if find_spec("sklearn") is None:
        raise MissingExtra(f"the tuner {tuner}", "scikit-learn", "gp", field="name")
