"""The class that user assessors extend."""

from __future__ import annotations

import os
from enum import Enum

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, List, Optional


class AssessResult(Enum):
    """An assessor's judgement on a trial."""

    #: Go on.
    Good = True
    #: Stop it early.
    Bad = False


class Assessor:
    """Judges running trials by their intermediate results. Calls come one at a time.

    A subclass overrides `assess_trial`.
    """

    def assess_trial(self, trial_job_id: str, trial_history: List[Any]) -> AssessResult:
        """AssessResult.Bad to stop a trial; `trial_history` holds all its intermediate results so far, oldest first."""
        raise NotImplementedError("{} has to define assess_trial.".format(type(self).__name__))

    def trial_end(self, trial_job_id: str, success: bool) -> None:
        """Takes note that a trial ended; `success` is False unless it succeeded."""

    def load_checkpoint(self) -> None:
        """Restores what `save_checkpoint` wrote; called when an experiment is resumed."""

    def save_checkpoint(self) -> None:
        """Writes the assessor's state to `get_checkpoint_path`."""

    def get_checkpoint_path(self) -> Optional[str]:
        """The folder for the assessor's state; None when the experiment has none."""
        folder = os.environ.get("NNI_CHECKPOINT_DIRECTORY")
        return folder if folder and os.path.isdir(folder) else None

    def _on_exit(self) -> None:
        pass

    def _on_error(self) -> None:
        pass
