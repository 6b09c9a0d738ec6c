"""The contract of assessors.

One instance serves one experiment. One thread makes one call at a time. An assessor stores nothing on disk: after a
restart `trial_end` is called again for every ended trial, in the order of ends, and running trials are judged with all
their values.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from nni_manager.domain.metrics import default_number


class Assessor(ABC):
    """Judges running trials by their intermediate results."""

    goes_by_steps = True

    @abstractmethod
    def judge(self, trial_id: str, history: Sequence[object], steps: Sequence[int] | None = None) -> bool:
        """Whether the trial may continue. Called once for each result.

        `history`: all intermediate results up to this step, as reported: numbers, or objects with ``default``; may
        include NaN. `steps`: of these results, from 0, ascending; None: 0, 1, 2, …. The last result is the one to
        judge.
        """

    @abstractmethod
    def trial_end(
        self, trial_id: str, success: bool, history: Sequence[object], steps: Sequence[int] | None = None
    ) -> None:
        """Processes all intermediate results of an ended trial, including unjudged ones; arguments as in `judge`."""

    def load_checkpoint(self) -> None:  # noqa: B027 - nothing to do is a fine answer
        """Reads the state that an earlier process of a resumed experiment saved. Called before all other methods."""

    def close(self) -> None:  # noqa: B027 - nothing to do is a fine answer
        """Saves state before an orderly end of the process; not called when it is killed."""


def places_of(history: Sequence[object], steps: Sequence[int] | None) -> Sequence[int]:
    """The number of steps up to each result: its step and 1."""
    return range(1, len(history) + 1) if steps is None else [step + 1 for step in steps]


def numbers_of(history: Sequence[object], sign: float) -> list[float]:
    """The values of intermediate results, multiplied by the sign; NaN for results without a number."""
    numbers = (default_number(value) for value in history)
    return [math.nan if number is None else sign * number for number in numbers]
