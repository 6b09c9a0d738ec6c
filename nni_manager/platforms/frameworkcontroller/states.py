"""The states of a Framework as job states. A completed one says why by type and code."""

from __future__ import annotations

from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import milliseconds
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.kubernetes.api.client import Object

COMPLETED = "Completed"
STATES = {
    "AttemptCreationPending": JobState.PENDING,
    "AttemptCreationRequested": JobState.PENDING,
    "AttemptPreparing": JobState.PENDING,
    "AttemptRunning": JobState.RUNNING,
    "AttemptDeletionPending": JobState.RUNNING,
    "AttemptDeletionRequested": JobState.RUNNING,
    "AttemptDeleting": JobState.RUNNING,
    "AttemptCompleted": JobState.RUNNING,  # a retry may follow
    COMPLETED: JobState.FAILED,  # unless its completion says that it succeeded, or was stopped
}
#: The stop was requested.
_STOPPED = -210
#: Codes of the platform's own failures that another attempt may not meet: pods lost, evicted, deleted from outside.
_TRANSIENT = range(-199, -99)
#: Reasons in the controller's config for a pod that the cluster ended, such as an eviction.
_TRANSIENT_TYPE = "Transient"
#: A pod that could not be created, for good.
_NOT_CREATED = -200
_LARGEST_EXIT_CODE = 255


def report(framework: Object) -> Observation:
    """The report on a Framework as the API gives it."""
    status: dict[str, Any] = framework.get("status") or {}
    state = str(status.get("state") or "AttemptCreationPending")
    attempt: dict[str, Any] = status.get("attemptStatus") or {}
    started_ms = milliseconds(attempt.get("runTime")) or milliseconds(status.get("startTime"))
    if state != COMPLETED:
        found = STATES.get(state, JobState.UNKNOWN)
        return Observation(
            state=found, native_reason=state, started_ms=None if found is JobState.PENDING else started_ms
        )
    return _completed(attempt.get("completionStatus") or {}, started_ms, milliseconds(status.get("completionTime")))


def _completed(told: dict[str, Any], started_ms: int | None, ended_ms: int | None) -> Observation:
    code = told.get("code")
    number = code if isinstance(code, int) else None
    trigger = (told.get("trigger") or {}).get("message")
    message = "; ".join(filter(None, (str(trigger or ""), str(told.get("diagnostics") or ""))))
    return Observation(
        state=_end(told.get("type") or {}, number),
        cause=Reason.SUBMIT_REJECTED if number == _NOT_CREATED else None,
        exit_code=number if number is not None and 0 <= number <= _LARGEST_EXIT_CODE else None,
        native_reason=str(told.get("phrase") or ""),
        message=message,
        started_ms=started_ms,
        ended_ms=ended_ms,
    )


def _end(kind: dict[str, Any], code: int | None) -> JobState:
    if kind.get("name") == "Succeeded":
        return JobState.SUCCEEDED
    if code == _STOPPED:
        return JobState.CANCELLED
    is_its_own = code is not None and code < 0 and _TRANSIENT_TYPE in (kind.get("attributes") or ())
    return JobState.PREEMPTED if is_its_own or code in _TRANSIENT else JobState.FAILED
