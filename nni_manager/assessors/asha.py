"""ASHA, asynchronous successive halving: at the steps ``min_steps * eta**k`` a trial continues if it is among the best
1 / `eta` of the trials that reached the step.

L. Li, K. Jamieson, A. Rostamizadeh, E. Gonina, J. Ben-tzur, M. Hardt, B. Recht, A. Talwalkar, "A System for Massively
Parallel Hyperparameter Tuning", MLSys 2020. There, a trial waits at such a rung until it is promoted. A running trial
cannot wait, so it is judged at once by the results in the rung, and ends or continues ("stopping" in A. Klein et al.,
"Model-based Asynchronous Hyperparameter and Neural Architecture Search", 2020). With fewer than `eta` results in the
rung, the best of them continues.

A value that is not a number counts as the worst. After a restart, rungs are filled with the values of ended trials, and
running trials are judged again at the rungs that they passed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from annotated_types import Ge, Le

from nni_manager.assessors.contract import Assessor, places_of
from nni_manager.domain.metrics import OptimizeModeName, default_number


class ASHA(Assessor):
    """`min_steps`: intermediate results before the first rung; `max_steps`: of a whole trial, rungs are below it;
    `early_stopping_rate`: number of first rungs to skip."""

    def __init__(
        self,
        *,
        optimize_mode: OptimizeModeName = "maximize",
        min_steps: Annotated[int, Ge(1)] = 1,
        max_steps: Annotated[int, Ge(1)] | None = None,
        eta: Annotated[int, Ge(2)] = 4,
        early_stopping_rate: Annotated[int, Ge(0), Le(20)] = 0,
    ) -> None:
        #: Factor that makes smaller values better.
        self._sign = -1.0 if optimize_mode == "maximize" else 1.0
        self._first = min_steps * eta**early_stopping_rate
        self._max_steps = max_steps
        self._eta = eta
        #: Step of a rung → trial → its loss there.
        self._rungs: dict[int, dict[str, float]] = {}

    def judge(self, trial_id: str, history: Sequence[object], steps: Sequence[int] | None = None) -> bool:
        places = [0, 0, *places_of(history, steps)[-2:]]
        rung = self._rung_between(places[-2], places[-1])
        if not rung:
            return True
        loss = self._note(rung, trial_id, history[-1])
        losses = sorted(self._rungs[rung].values())
        best = max(len(losses) // self._eta, 1)
        return loss <= losses[best - 1] and (loss < math.inf or len(losses) == 1)

    def trial_end(
        self, trial_id: str, success: bool, history: Sequence[object], steps: Sequence[int] | None = None
    ) -> None:
        before = 0
        for place, value in zip(places_of(history, steps), history, strict=True):
            if rung := self._rung_between(before, place):
                self._note(rung, trial_id, value)
            before = place

    def _rung_between(self, before: int, place: int) -> int:
        """The last rung that a trial reached since its previous result; 0: none."""
        most = place if self._max_steps is None else min(place, self._max_steps - 1)
        rung = self._first
        while rung * self._eta <= most:
            rung *= self._eta
        return rung if before < rung <= most else 0

    def _note(self, rung: int, trial_id: str, value: object) -> float:
        number = default_number(value)
        loss = math.inf if number is None or math.isnan(number) else self._sign * number
        return self._rungs.setdefault(rung, {}).setdefault(trial_id, loss)
