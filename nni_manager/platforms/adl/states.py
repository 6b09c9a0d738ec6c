"""The phases of an AdaptDLJob as job states. A running job that moves to other nodes goes back to Pending."""

from __future__ import annotations

import json
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import milliseconds
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.kubernetes.api.client import Object

PHASES = {
    "Pending": JobState.PENDING,
    "Starting": JobState.PENDING,
    "Running": JobState.RUNNING,
    "Stopping": JobState.RUNNING,
    "Succeeded": JobState.SUCCEEDED,
    "Failed": JobState.FAILED,
}
#: Reasons of a job that never had pods.
_NEVER_MADE = ("PodCreationError", "Invalid")
_BODY = "HTTP response body: "


def report(job: Object) -> Observation:
    """The report on an AdaptDLJob as the API returns it. `group` counts the creations of its pods, from 0."""
    status: dict[str, Any] = job.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    state = PHASES.get(phase, JobState.UNKNOWN)
    group = status.get("group")
    has_run = (isinstance(group, int) and group > 0) or (phase == "Pending" and "group" in status)
    if state is JobState.PENDING and has_run:
        state = JobState.RUNNING
    reason = str(status.get("reason") or phase)
    return Observation(
        state=state,
        native_reason=reason,
        message=_short(str(status.get("message") or "")),
        cause=Reason.SUBMIT_REJECTED if reason in _NEVER_MADE else None,
        ended_ms=milliseconds(status.get("completionTimestamp")) if state.is_final else None,
    )


def _short(message: str) -> str:
    """The server's sentence, without the headers that an exception's text contains; other messages unchanged."""
    _, found, body = message.partition(_BODY)
    try:
        told = json.loads(body) if found else None
    except ValueError:
        told = None
    return str(told["message"]) if isinstance(told, dict) and told.get("message") else message
