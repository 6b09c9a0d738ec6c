"""Auto."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from nni_manager.domain.metrics import OptimizeModeName
from nni_manager.tuners.auto import start
from nni_manager.tuners.learning import LearningTuner

if TYPE_CHECKING:
    from nni_manager.tuners.auto.model import Model


class Auto(LearningTuner):
    def __init__(self, *, optimize_mode: OptimizeModeName = "minimize", seed: Annotated[int, Ge(0)] | None = None) -> None:
        super().__init__(optimize_mode=optimize_mode, seed=seed)
        self._model: Model | None = None

    def forget(self) -> None:
        self._model = None

    def suggest(self, parameter_id: int, source: random.Random) -> dict[str, object]:
        if len(self.observed) < self._start_trials():
            return self._start(parameter_id, source)
        from nni_manager.tuners.auto.model import Model

        if self._model is None:
            self._model = Model(self.space)
        units = self._model.suggest(self.observed, self.running, source)
        return self.parameters(units, source)

    def _start_trials(self) -> int:
        return min(max(4, len(self.space.places)), 10)

    def _start(self, parameter_id: int, source: random.Random) -> dict[str, object]:
        point = iter(start.point(self.seed, parameter_id, len(self.space.places)))
        units = {place.key: next(point) for place in self.space.places}
        return self.parameters(units, source)
