"""The class that user assessors extend."""

from __future__ import annotations

from enum import Enum

from nni.recoverable import Recoverable, missing

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, List


class AssessResult(Enum):
    """An assessor's judgement on a trial."""

    #: Continue.
    Good = True
    #: Stop it early.
    Bad = False


class Assessor(Recoverable):
    """Judges running trials by their intermediate results. Calls come one at a time.

    A subclass overrides `assess_trial`.
    """

    def assess_trial(self, trial_job_id: str, trial_history: List[Any]) -> AssessResult:
        """AssessResult.Bad to stop a trial; `trial_history` holds all its intermediate results so far, oldest first."""
        raise missing(self, "assess_trial")

    def trial_end(self, trial_job_id: str, success: bool) -> None:
        """Notes that a trial ended; `success` is False unless it succeeded."""
