"""Conditions of TFJobs and PyTorchJobs as job states. They accumulate and may be false, so types count, not order."""

from __future__ import annotations

from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import milliseconds
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.kubernetes.api.client import Object

#: The first true condition gives the state.
STATES = {
    "Failed": JobState.FAILED,
    "Succeeded": JobState.SUCCEEDED,
    "Suspended": JobState.PENDING,
    "Restarting": JobState.RUNNING,
    "Running": JobState.RUNNING,
    "Created": JobState.PENDING,
}


def report(job: Object) -> Observation:
    """The report on a TFJob or PyTorchJob as the API returns it."""
    status: dict[str, Any] = job.get("status") or {}
    true = {one["type"]: one for one in status.get("conditions") or () if one.get("status") == "True"}
    found = next((kind for kind in STATES if kind in true), None)
    if found is None:
        return Observation(state=JobState.UNKNOWN if true else JobState.PENDING)
    state, told = STATES[found], true[found]
    return Observation(
        state=state,
        native_reason=str(told.get("reason") or found),
        message=str(told.get("message") or ""),
        started_ms=None if state is JobState.PENDING else milliseconds(status.get("startTime")),
        ended_ms=milliseconds(status.get("completionTime")) if state.is_final else None,
        wait=_suspended(job) if found == "Suspended" else None,
    )


def _suspended(job: Object) -> Wait:
    name = (job.get("metadata") or {}).get("name")
    sentence = f"{job.get('kind')} {name} is suspended: it waits until its spec.runPolicy.suspend is false"
    return Wait(code=WaitCode.SUBMITTED, sentence=sentence, details={"reason": "Suspended"})
