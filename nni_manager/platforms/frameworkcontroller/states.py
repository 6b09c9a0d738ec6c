"""The states of a Framework as job states. A completed one has a reason: type and code."""

from __future__ import annotations

import json
import re
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
    "AttemptCompleted": JobState.RUNNING,  # a retry is possible
    COMPLETED: JobState.FAILED,  # unless its completion says success or stop
}
#: A stop was requested.
_STOPPED = -210
#: Codes of platform failures that another attempt may avoid: pods lost, evicted, or deleted by others.
_TRANSIENT = range(-199, -99)
#: Reasons in the controller's config for a pod that the cluster ended, such as an eviction.
_TRANSIENT_TYPE = "Transient"
#: A pod that the API server refused: invalid, Forbidden or BadRequest.
_NOT_CREATED = (-200, -310)
#: Temporary refusals: the server has just started, the quota is new, or the connection broke.
_PASSING = re.compile(
    r"not yet ready to handle request|status unknown for quota|caches not synchronized"
    r"|connection reset by peer|closed network connection|broken connection|\bEOF\b"
)
#: A pod that failed before its containers: its node refused it, or its own time limit expired.
_NO_CONTAINER, _TOO_LONG = -300, "DeadlineExceeded"
#: Diagnostics with JSON after these texts.
_REFUSED, _ENDED = "Failed to create Pod: ", "PodPattern unmatched: "
_LARGEST_EXIT_CODE = 255


def report(framework: Object) -> Observation:
    """The report on a Framework as the API returns it."""
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
    reason, words = _explained(str(told.get("diagnostics") or ""), number)
    is_rejected = number in _NOT_CREATED and not _PASSING.search(words)
    return Observation(
        state=JobState.FAILED if is_rejected else _end(told.get("type") or {}, number, reason),
        cause=Reason.SUBMIT_REJECTED if is_rejected else None,
        exit_code=number if number is not None and 0 <= number <= _LARGEST_EXIT_CODE else None,
        native_reason=reason or str(told.get("phrase") or ""),
        message="; ".join(filter(None, (str(trigger or ""), words))),
        started_ms=started_ms,
        ended_ms=ended_ms,
    )


def _explained(diagnostics: str, code: int | None) -> tuple[str, str]:
    """The reason of a pod without an ended container, and the server's or node's message in the diagnostics. For
    other codes: an empty reason and the whole diagnostics."""
    if code in _NOT_CREATED:
        refusal = _json_behind(_REFUSED, diagnostics).get("ErrStatus")
        words = refusal.get("message") if isinstance(refusal, dict) else None
        return "", f"{_REFUSED}{words}" if words else diagnostics
    if code == _NO_CONTAINER:
        pod = _json_behind(_ENDED, diagnostics)
        words = ": ".join(str(pod[name]) for name in ("reason", "message") if pod.get(name))
        return str(pod.get("reason") or ""), words or diagnostics
    return "", diagnostics


def _json_behind(words: str, diagnostics: str) -> dict[str, Any]:
    """The object after this text; empty: there is none."""
    try:
        found = json.loads(diagnostics.partition(words)[2])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _end(kind: dict[str, Any], code: int | None, reason: str) -> JobState:
    if kind.get("name") == "Succeeded":
        return JobState.SUCCEEDED
    if code == _STOPPED:
        return JobState.CANCELLED
    is_its_own = code is not None and code < 0 and _TRANSIENT_TYPE in (kind.get("attributes") or ())
    is_refused = code in _NOT_CREATED or (code == _NO_CONTAINER and reason != _TOO_LONG)
    return JobState.PREEMPTED if is_its_own or is_refused or code in _TRANSIENT else JobState.FAILED
