"""The status of a Job of `batch/v1` as a job state. Interim conditions come before the end, which only two state."""

from __future__ import annotations

from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import milliseconds
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.kubernetes.api.client import Object

#: The first true condition gives the state. `FailureTarget` and `SuccessCriteriaMet` precede the end of the last pod.
STATES = {
    "Failed": JobState.FAILED,
    "Complete": JobState.SUCCEEDED,
    "FailureTarget": JobState.RUNNING,
    "SuccessCriteriaMet": JobState.RUNNING,
    "Suspended": JobState.PENDING,
}
#: The pod condition in the message of a job that ended by our `podFailurePolicy`.
_DISRUPTED = "condition DisruptionTarget"


def report(job: Object) -> Observation:
    """The report on a Job as the API returns it."""
    status: dict[str, Any] = job.get("status") or {}
    true = {one["type"]: one for one in status.get("conditions") or () if one.get("status") == "True"}
    found = next((kind for kind in STATES if kind in true), None)
    if found is None:
        return _without_condition(status, is_known=not true)
    state, told = STATES[found], true[found]
    message = str(told.get("message") or "")
    if state is JobState.FAILED and told.get("reason") == "PodFailurePolicy" and _DISRUPTED in message:
        state = JobState.PREEMPTED
    return Observation(
        state=state,
        native_reason=str(told.get("reason") or found),
        message=message if state.is_final else "",
        wait=Wait(code=WaitCode.SUBMITTED, sentence="the Job is suspended") if state is JobState.PENDING else None,
        started_ms=None if state is JobState.PENDING else milliseconds(status.get("startTime")),
        ended_ms=milliseconds(told.get("lastTransitionTime")) if state.is_final else None,
    )


def _without_condition(status: dict[str, Any], *, is_known: bool) -> Observation:
    """The report on a Job without a condition of the table. `active` also counts pods that wait for a node."""
    if status.get("ready"):
        return Observation(state=JobState.RUNNING, started_ms=milliseconds(status.get("startTime")))
    return Observation(state=JobState.PENDING if is_known or status.get("active") else JobState.UNKNOWN)
