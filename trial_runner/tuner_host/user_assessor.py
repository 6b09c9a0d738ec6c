"""A user's assessor: a class written for NNI, by name methods of `nni.assessor.Assessor`.

Nothing is imported from `nni` here: the class brings whichever `nni` it was written for.
"""

from __future__ import annotations

from typing import Any, Dict, Sequence

from trial_runner.tuner_host.arrays import restored
from trial_runner.tuner_host.verbs import HostedAssessor, call_hook


class UserAssessor(HostedAssessor):
    """Speaks to `instance` as NNI's dispatcher does."""

    def __init__(self, instance: Any) -> None:
        self._instance = instance
        #: For each running trial how many of its values the instance has seen.
        self._seen: Dict[str, int] = {}

    def load_checkpoint(self) -> None:
        call_hook(self._instance, "load_checkpoint")

    def close(self) -> None:
        call_hook(self._instance, "_on_exit")

    def judge(self, trial_id: str, history: Sequence[Any]) -> bool:
        self._seen[trial_id] = len(history)
        return _is_good(self._instance.assess_trial(trial_id, restored(history)))

    def trial_end(self, trial_id: str, success: bool, history: Sequence[Any]) -> None:
        """As in NNI, the instance does not hear of trials without intermediate results."""
        seen = self._seen.pop(trial_id, 0)
        for step in range(seen + 1, len(history) + 1):
            # after a restart, or when the last values came with the end: it must know them before it hears of the end
            self._instance.assess_trial(trial_id, restored(history[:step]))
        end = getattr(self._instance, "trial_end", None)
        if (seen or history) and end is not None:
            end(trial_id, success)


def _is_good(answer: object) -> bool:
    if isinstance(answer, bool):
        return answer
    name = getattr(answer, "name", None)
    if name not in ("Good", "Bad"):
        raise TypeError(f"assess_trial must answer AssessResult.Good or AssessResult.Bad, but it answered {answer!r}")
    return str(name) == "Good"
