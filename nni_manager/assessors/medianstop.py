"""Medianstop: a trial is stopped at a step if its best value so far is worse than the median of the succeeded trials'
average values up to that step (the median stopping rule of Google Vizier).

Values that are not numbers, including NaN, count as steps but not in best values and averages.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Annotated

from annotated_types import Ge

from nni_manager.assessors.contract import Assessor, numbers_of, places_of
from nni_manager.domain.metrics import OptimizeModeName


class Medianstop(Assessor):
    """`start_step`: the first judged step."""

    def __init__(self, *, optimize_mode: OptimizeModeName = "maximize", start_step: Annotated[int, Ge(0)] = 0) -> None:
        #: Factor that makes smaller values better.
        self._sign = -1.0 if optimize_mode == "maximize" else 1.0
        self._start_step = start_step
        #: Number of steps → running averages of the succeeded trials.
        self._averages: defaultdict[int, list[float]] = defaultdict(list)

    def judge(self, trial_id: str, history: Sequence[object], steps: Sequence[int] | None = None) -> bool:
        place = next(iter(places_of(history, steps)[-1:]), 0)
        losses = [loss for loss in numbers_of(history, self._sign) if not math.isnan(loss)]
        others = self._averages.get(place)
        if place < self._start_step or not losses or not others:
            return True
        # of two middle values the worse one counts, as in NNI
        return min(losses) <= sorted(others)[len(others) // 2]

    def trial_end(
        self, trial_id: str, success: bool, history: Sequence[object], steps: Sequence[int] | None = None
    ) -> None:
        if not success:
            return
        averages = _running_averages(numbers_of(history, self._sign))
        for place, average in zip(places_of(history, steps), averages, strict=True):
            if not math.isnan(average):
                self._averages[place].append(average)


def _running_averages(losses: Sequence[float]) -> Iterator[float]:
    """The average of the numbers up to each step; NaN before the first number."""
    total, count = 0.0, 0
    for loss in losses:
        if not math.isnan(loss):
            total, count = total + loss, count + 1
        yield total / count if count else math.nan
