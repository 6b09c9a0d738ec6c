"""The contract of assessors.

One instance serves one experiment, is called by one thread, one call at a time. It keeps nothing on disk: after a
restart `trial_end` is called again for every trial that has ended, in the order of ends, and running trials are judged
with all their values.
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
        """Whether the trial may go on. Called once for each result.

        `history`: all intermediate results up to this step, as reported: numbers, or objects with ``default``; NaN may
        be among them. `steps`: of these results, from 0, rising; None: 0, 1, 2, …. The last result is the one to judge.
        """

    @abstractmethod
    def trial_end(
        self, trial_id: str, success: bool, history: Sequence[object], steps: Sequence[int] | None = None
    ) -> None:
        """Takes all intermediate results of an ended trial, also those that were not judged; otherwise as `judge`."""

    def load_checkpoint(self) -> None:  # noqa: B027 - nothing to do is a fine answer
        """Reads what an earlier process of a resumed experiment saved. Called before all other methods."""

    def close(self) -> None:  # noqa: B027 - nothing to do is a fine answer
        """Saves state before an orderly end of the process; not called when it is killed."""


def places_of(history: Sequence[object], steps: Sequence[int] | None) -> Sequence[int]:
    """The number of steps that the trial had come with each result: its step and 1."""
    return range(1, len(history) + 1) if steps is None else [step + 1 for step in steps]


def numbers_of(history: Sequence[object], sign: float) -> list[float]:
    """The numbers of intermediate results, multiplied by the sign; NaN for one that is none."""
    numbers = (default_number(value) for value in history)
    return [math.nan if number is None else sign * number for number in numbers]
