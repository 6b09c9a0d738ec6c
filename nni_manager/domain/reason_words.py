"""A trial's end in words for people: plain words first, what was seen next, the code for programs last."""

from __future__ import annotations

from nni_manager.domain.trial import Reason

_WORDS = {
    Reason.USER_CODE: "its command failed",
    Reason.OUT_OF_MEMORY: "it ran out of memory",
    Reason.GPU_OUT_OF_MEMORY: "its GPU ran out of memory",
    Reason.RUNNER_FAILED: "its command could not be started",
    Reason.SUBMIT_REJECTED: "the training service refused its job",
    Reason.VERSION_MISMATCH: "its trial runner has another version than the manager",
    Reason.PREEMPTED: "the training service took its place away",
    Reason.LOST: "its job was lost",
    Reason.CANCELLED_THERE: "it was ended at the training service",
    Reason.USER_REQUEST: "a user ended it",
    Reason.ASSESSOR: "the assessor ended it early",
    Reason.TIMEOUT: "it reached maxTrialDuration",
    Reason.EXPERIMENT_STOPPED: "it was ended as the experiment was stopped",
}
#: What shells mean by two exit codes.
_SHELL_WORDS = {
    "exit code 126": "exit code 126: a command could not be run",
    "exit code 127": "exit code 127: a command was not found",
}


def in_words(reason: str | None, message: str) -> str:
    """``its command failed, exit code 127: a command was not found (USER_CODE)``; `reason` may be empty."""
    seen = _SHELL_WORDS.get(message, message)
    words = _WORDS[Reason(reason)] if reason and reason in Reason.__members__ else reason
    return f"{', '.join(filter(None, (words, seen)))} ({reason})" if reason else seen
