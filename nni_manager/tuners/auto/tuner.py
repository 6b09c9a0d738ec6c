"""Auto: chooses its method by the search space, the number of trials and the number of concurrent ones.

It begins with quasi-random trials (`start`), continues with a model of all results (`model`) while there are few
enough, and then makes steps from the best (`steps`). Failed trials, and results that are not finite numbers, count as
the worst result for the model; a trial that was stopped early counts with its final result, or as failed without one.

Proposals depend on seed, parameter id, known results and running trials, so that a restarted tuner continues
seamlessly. numpy is imported with the first proposal of the model.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from nni_manager.domain.metrics import OptimizeModeName
from nni_manager.tuners.auto import choice, start, steps
from nni_manager.tuners.auto.choice import Choice
from nni_manager.tuners.learning import LearningTuner, Units

if TYPE_CHECKING:
    from nni_manager.tuners.auto.model import Model

log = logging.getLogger(__name__)

#: Minimum number of results for the model.
_FEWEST = 3
#: Maximum number of attempts to replace a repeated proposal.
_TRIES = 20


class Auto(LearningTuner):
    """`optimize_mode` has no default. `seed`: any whole number; default: a different one for every process."""

    def __init__(self, *, optimize_mode: OptimizeModeName, seed: Annotated[int, Ge(0)] | None = None) -> None:
        super().__init__(optimize_mode=optimize_mode, seed=seed)
        self._trials: int | None = None
        self._concurrency = 1
        self._choice: Choice | None = None
        self._model: Model | None = None
        #: Ended trials, from the first entries of `ended`.
        self._seen: set[tuple[float, ...]] = set()
        self._counted = 0
        #: Running trials while a proposal is computed.
        self._at_work: set[tuple[float, ...]] = set()

    def expect(self, *, trials: int | None, concurrency: int) -> None:
        self._trials, self._concurrency = trials, concurrency

    def forget(self) -> None:
        self._choice, self._model = None, None
        self._seen, self._counted = set(), 0

    def suggest(self, parameter_id: int, source: random.Random) -> dict[str, object]:
        chosen = self._chosen()
        if not self.space.places:
            return {}
        self._count_seen()
        if self._starts(chosen.start):
            return self._first_new(lambda attempt: self._start(parameter_id, attempt, source), source)
        if len(self.ended) + len(self.running) < chosen.model_until and len(self._seen) < chosen.points:
            return self.parameters(self._of_model(source), source)
        return self._first_new(lambda attempt: steps.step(self.space, self.ranked, source), source)

    def state(self) -> dict[str, object]:
        return {**super().state(), "chosen": self._chosen().sentence}

    def _chosen(self) -> Choice:
        if self._choice is None:
            self._choice = choice.choose(self.space, self._trials, self._concurrency)
            log.info("%s", self._choice.sentence)
        return self._choice

    def _starts(self, trials: int) -> bool:
        """Whether the quasi-random start continues; running trials count for it once there are a few results."""
        return len(self.observed) < min(trials, _FEWEST) or len(self.observed) + len(self.running) < trials

    def _of_model(self, source: random.Random) -> Units:
        from nni_manager.tuners.auto.model import Model

        if self._model is None:
            self._model = Model(self.space)
        return self._model.suggest(self.ended, self.running, source)

    def _start(self, parameter_id: int, attempt: int, source: random.Random) -> Units:
        if attempt:  # rounding made two points of the sequence equal
            return {}
        point = start.point(self.seed, parameter_id, len(self.space.places))
        return {place.key: unit for place, unit in zip(self.space.places, point, strict=True)}

    def _first_new(self, draw: Callable[[int], Units], source: random.Random) -> dict[str, object]:
        """The first of several drawn proposals that is new, if any."""
        for attempt in range(_TRIES):
            parameters = self.parameters(draw(attempt), source)
            if not self._is_known(parameters):
                break
        return parameters

    def _is_known(self, parameters: dict[str, object]) -> bool:
        """Whether a trial had these parameters, or has them now."""
        identity = self._identity(self.units(parameters) or {})
        return identity in self._seen or identity in self._at_work

    def _count_seen(self) -> None:
        for units, _ in self.ended[self._counted :]:
            self._seen.add(self._identity(units))
        self._counted = len(self.ended)
        self._at_work = {self._identity(units) for units in self.running}

    def _identity(self, units: Units) -> tuple[float, ...]:
        return tuple(units.get(place.key, -1.0) for place in self.space.places)
