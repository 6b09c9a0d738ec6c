"""Trials: evaluations of parameters, the table that decides how a trial ends, and texts about its end.

Trials that failed in the same way have the same failure key.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from nni_manager.domain.attempt import Attempt, Observation
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.text import last_line, shortened
from nni_manager.domain.trial_status import FAILED_STATUSES, TrialStatus
from trial_runner import protocol
from trial_runner.wire import failure_cause


class StopRequest(StrEnum):
    """A request to end a trial, by its origin. It is stored before a stop is sent."""

    USER = "USER"
    ASSESSOR = "ASSESSOR"
    TIMEOUT = "TIMEOUT"
    EXPERIMENT_STOPPED = "EXPERIMENT_STOPPED"


class OpenTrial(NamedTuple):
    """A trial that has not ended, and its current attempt, if one was started."""

    id: str
    sequence_id: int
    status: TrialStatus
    #: JSON, as the trial reads it.
    record: str
    created_ms: int
    started_ms: int | None
    attempt: int
    asked: StopRequest | None
    wait_code: str
    wait_sentence: str
    #: JSON.
    wait_details: str
    #: When the reason was written.
    wait_ms: int
    #: None: this attempt was not started yet.
    job: Attempt | None
    #: The current attempt has reported a final result.
    has_final: bool = False
    #: Number of final results of the current attempt after the first one.
    further_finals: int = 0
    #: The trial whose checkpoint it begins with; empty: none.
    continues: str = ""


#: Ends that the user's code did not cause: another attempt counts as a platform retry.
PLATFORM_FAILURES = frozenset({Reason.LOST, Reason.PREEMPTED, Reason.RUNNER_FAILED})
#: Default number of retries after ends caused by the platform.
PLATFORM_RETRIES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The decision on a trial after an attempt has ended. `status` WAITING means: another attempt."""

    status: TrialStatus
    reason: Reason = Reason.NONE
    #: A sentence for the user, where neither platform nor runner has one; else empty.
    message: str = ""


def outcome(
    report: Observation, asked: StopRequest | None, *, platform_retries: int, user_retries: int, has_final: bool = False
) -> Outcome:
    """The table of trial outcomes: observation of an attempt × request to stop it.

    `platform_retries`, `user_retries`: how many attempts are still allowed on either account. `has_final`: the
    attempt's final result is stored.
    """
    if report.state is JobState.SUCCEEDED:
        return Outcome(status=TrialStatus.SUCCEEDED)
    if report.cause is Reason.VERSION_MISMATCH:
        return Outcome(status=TrialStatus.FAILED, reason=Reason.VERSION_MISMATCH)
    if asked is not None:
        return _STOPPED[asked]
    if has_final and report.state in (JobState.LOST, JobState.PREEMPTED):
        return Outcome(status=TrialStatus.SUCCEEDED, message=_UNSEEN.format(explain(report)))
    if has_final and report.cause is Reason.TIMEOUT:
        return Outcome(status=TrialStatus.SUCCEEDED, message=_CUT_SHORT.format(explain(report)))
    if report.state is JobState.CANCELLED:  # ended at the platform by a user: no further attempt
        return Outcome(status=TrialStatus.SYS_CANCELED, reason=Reason.CANCELLED_THERE)
    if report.state in (JobState.LOST, JobState.PREEMPTED):
        reason = Reason.LOST if report.state is JobState.LOST else Reason.PREEMPTED
        may_retry = report.is_uncounted or platform_retries > 0
        status = TrialStatus.WAITING if may_retry else TrialStatus.SYS_CANCELED
        return Outcome(status=status, reason=reason)
    if report.cause is Reason.RUNNER_FAILED:
        status = TrialStatus.WAITING if platform_retries > 0 else TrialStatus.FAILED
        return Outcome(status=status, reason=Reason.RUNNER_FAILED)
    reason = failure_reason(report)
    retry = user_retries > 0 and reason in _USER_FAILURES
    return Outcome(status=TrialStatus.WAITING if retry else TrialStatus.FAILED, reason=reason)


_STOPPED = {
    StopRequest.USER: Outcome(status=TrialStatus.USER_CANCELED, reason=Reason.USER_REQUEST),
    StopRequest.ASSESSOR: Outcome(status=TrialStatus.EARLY_STOPPED, reason=Reason.ASSESSOR),
    StopRequest.TIMEOUT: Outcome(status=TrialStatus.EARLY_STOPPED, reason=Reason.TIMEOUT),
    StopRequest.EXPERIMENT_STOPPED: Outcome(status=TrialStatus.USER_CANCELED, reason=Reason.EXPERIMENT_STOPPED),
}
#: A trial with a final result is not run again.
_UNSEEN = "its end was not observed ({}); it counts as successful, because its final result is stored"
_CUT_SHORT = "a time limit ended it ({}); it counts as successful, because its final result is stored"
_USER_FAILURES = frozenset({Reason.USER_CODE, Reason.OUT_OF_MEMORY, Reason.GPU_OUT_OF_MEMORY, Reason.TIMEOUT})


def ignored_finals(count: int) -> str:
    """A message about ignored final results after the first one of an attempt, or empty."""
    if not count:
        return ""
    results = "1 further final result was" if count == 1 else f"{count} further final results were"
    return f"{results} ignored: report once, from rank 0"


def failure_reason(report: Observation) -> Reason:
    """The reason of a failed attempt: by its cause, then by the end of its stderr."""
    if report.cause in (Reason.SUBMIT_REJECTED, Reason.VERSION_MISMATCH, Reason.TIMEOUT):
        return report.cause
    words = report.stderr_tail
    if protocol.OTHER_PYTHON_MARK in words:
        return Reason.OTHER_PYTHON
    if "CUDA out of memory" in words or "CUDA_ERROR_OUT_OF_MEMORY" in words or "OutOfMemoryError: CUDA" in words:
        return Reason.GPU_OUT_OF_MEMORY
    if report.cause is Reason.OUT_OF_MEMORY or "MemoryError" in words or "std::bad_alloc" in words:
        return Reason.OUT_OF_MEMORY
    return Reason.USER_CODE


def explain(report: Observation, asked: StopRequest | None = None) -> str:
    """How an attempt ended, one sentence for status, page and log. `asked`: the request to end it."""
    if report.message:
        return report.message
    if report.signal is not None:
        # the manager kills trials that do not stop
        is_foreign = report.signal == signals.SIGKILL and asked is None
        cause = "; the manager did not send it, perhaps the system ran out of memory" if is_foreign else ""
        return f"killed by signal {report.signal} ({_signal_name(report.signal)}){cause}"
    if report.exit_code is not None:
        return f"exit code {report.exit_code}"
    reason = report.cause or _REASONS.get(report.state)
    return report.native_reason or (_WORDS[reason] if reason else report.state.value)


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return "unknown"


_WORDS = {
    Reason.USER_CODE: "its command failed",
    Reason.OUT_OF_MEMORY: "it ran out of memory",
    Reason.GPU_OUT_OF_MEMORY: "its GPU ran out of memory",
    Reason.RUNNER_FAILED: "its command could not be started",
    Reason.SUBMIT_REJECTED: "the training service refused its job",
    Reason.VERSION_MISMATCH: "its trial runner has another version than the manager",
    Reason.OTHER_PYTHON: "its Python has another version than the function that it calls",
    Reason.PREEMPTED: "the training service preempted it",
    Reason.LOST: "its job was lost",
    Reason.CANCELLED_THERE: "it was ended at the training service",
    Reason.USER_REQUEST: "a user ended it",
    Reason.ASSESSOR: "the assessor ended it early",
    Reason.TIMEOUT: "a time limit of the training service ended it",
    Reason.EXPERIMENT_STOPPED: "it ended because the experiment was stopped",
}
_STOPPED_LATE = "it reached maxTrialDuration"
#: Final state of a job → the reason that the state implies.
_REASONS = {
    JobState.FAILED: Reason.USER_CODE,
    JobState.CANCELLED: Reason.CANCELLED_THERE,
    JobState.PREEMPTED: Reason.PREEMPTED,
    JobState.LOST: Reason.LOST,
}
#: The meaning of two exit codes of shells.
_NOT_RUN, _NOT_FOUND = "exit code 126", "exit code 127"
_SHELL_WORDS = {
    _NOT_RUN: f"{_NOT_RUN}: a command could not be run",
    _NOT_FOUND: f"{_NOT_FOUND}: a command was not found",
}
#: If a script's interpreter does not exist, the kernel reports that the script does not exist.
_MAY_BE_THERE = (
    "; if that file exists, the interpreter in its first line does not, for example because the line ends with CRLF"
    " (convert it with dos2unix)"
)
#: Messages of shells: ``sh: 1: train: not found``, ``bash: line 1: train: command not found``, ``zsh: … found: train``.
_MISSING = re.compile(r"(?:not found: (?P<last>\S+)|: (?P<name>[^:]+): (?:command )?not found)$")


def reason_in_words(reason: str | None, message: str, last_words: str = "", status: str = "") -> str:
    """A reason as text: ``its command failed, exit code 1: ValueError: no rate (USER_CODE)``. May be empty.

    `last_words`: the line of the trial's stderr that shows the cause, or empty. `status`: the trial's, which says whose
    time limit a TIMEOUT was.
    """
    words = _WORDS[Reason(reason)] if reason and reason in Reason.__members__ else reason
    if reason == Reason.TIMEOUT and status == TrialStatus.EARLY_STOPPED:
        words = _STOPPED_LATE
    between = ": " if reason == Reason.CANCELLED_THERE else ", "
    how = between.join(filter(None, dict.fromkeys((words, _seen(message, last_words)))))
    return f"{how} ({reason})" if reason else message


def explanation(trial: Mapping[str, Any]) -> str:
    """Why a trial has its status: the wait, or how it ended; may be empty. `trial`: from the API's list."""
    if trial["wait"]:
        return str(trial["wait"]["sentence"])
    asked = f"asked to stop: {trial['stopRequest']}" if trial["stopRequest"] and not trial["endedMs"] else ""
    return reason_in_words(trial["reason"], trial["message"], trial["lastWords"], trial["status"]) or asked


def _seen(message: str, last_words: str) -> str:
    """How it ended, with its last line of stderr; a shell's message about a missing command names the command."""
    missing = _MISSING.search(last_words) if message == _NOT_FOUND else None
    if missing is not None:
        name = missing["last"] or missing["name"].strip()
        return f"{_NOT_FOUND}: the command {name} was not found{_MAY_BE_THERE if '/' in name else ''}"
    seen = _SHELL_WORDS.get(message, message)
    return ": ".join(filter(None, (seen, last_words)))


def cause_line(stderr_tail: str) -> str:
    """The cause in the end of a trial's standard error, cut to 200 characters, or empty."""
    return shortened(failure_cause.cause_of(stderr_tail))


#: ``/data/x.csv``, ``~/x``, ``data/x``, ``C:\\x``, the part of an address after its scheme.
_PATH = re.compile(r"(?:[A-Za-z]:\\|~?/|[\w.-]+/)[^\s'\"`,;()<>\[\]{}]*")
#: Numbers, hexadecimal addresses, IP addresses, and names that hold a digit, as ids do.
_NUMBER = re.compile(r"(?<![\w.])[-+]?\w*\d\w*(?:[.:+-]*\w*\d\w*)*")
#: What a cluster appends to a job's name, which ends with the trial's id, to name its pods: ``-0-x7kqz``, ``-bqxwz``.
_SUFFIXES = r"(?:-[a-z\d]+)*"
#: Characters of a cause that its key is made of. It is cut afterwards: what varies in it may have another length.
_KEYED = 1000


def failure_key(status: TrialStatus, reason: Reason, report: Observation, trial_id: str) -> str:
    """The key of a failed trial; empty for other trials.

    It consists of cause, exit code or signal, and the line of stderr with the cause (else the platform's message):
    ``USER_CODE, exit code 1: ValueError: # is not a rate``. Numbers, paths, addresses and the trial's id with the
    suffixes of its pods are normalized.
    """
    if status not in FAILED_STATUSES:
        return ""
    how = ", ".join(filter(None, (reason.value, _code(report))))
    said = "" if reason is Reason.OUT_OF_MEMORY else last_line(report.message)  # may name a pod
    line = failure_cause.cause_of(report.stderr_tail)[:_KEYED] or said
    line = re.sub(re.escape(trial_id) + _SUFFIXES, "#", line)
    words = shortened(_NUMBER.sub("#", _PATH.sub("…", line)))
    return f"{how}: {words}" if words else how


def _code(report: Observation) -> str:
    if report.signal is not None:
        return f"signal {report.signal}"
    return f"exit code {report.exit_code}" if report.exit_code is not None else ""
