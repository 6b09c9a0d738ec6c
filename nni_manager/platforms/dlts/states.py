"""The statuses of DLWorkspace as job states::

    unapproved  PENDING    queued     PENDING    scheduling  PENDING
    running     RUNNING    pausing    RUNNING    killing     RUNNING
    paused      PENDING    finished   SUCCEEDED  failed      FAILED
    error       FAILED     killed     CANCELLED

A running job may be queued again if its pod vanishes or is preempted. The service reports no exit codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.web_services.jobs import StateTable

STATES: Mapping[str, JobState] = {
    "unapproved": JobState.PENDING,
    "queued": JobState.PENDING,
    "scheduling": JobState.PENDING,
    "paused": JobState.PENDING,
    "running": JobState.RUNNING,
    "pausing": JobState.RUNNING,
    "killing": JobState.RUNNING,
    "finished": JobState.SUCCEEDED,
    "failed": JobState.FAILED,
    "error": JobState.FAILED,
    "killed": JobState.CANCELLED,
}
_WAITS = {
    "unapproved": "it waits for approval",
    "queued": "it waits in its team's queue",
    "scheduling": "its pod is being placed",
    "paused": "it is paused; resume it in the dashboard",
}
#: Status of the service → job state.
job_state = StateTable("DLWorkspace", STATES).state


def report(entry: Mapping[str, Any]) -> Observation:
    """The report on a job, from its list entry or its status."""
    native = str(entry.get("jobStatus"))
    state = job_state(native)
    if state is JobState.PENDING:
        sentence = f"DLWorkspace says {native}: {_WAITS[native]}"
        return Observation(state=state, wait=Wait(code=WaitCode.SUBMITTED, sentence=sentence))
    if state is JobState.FAILED:
        words = str(entry.get("errorMsg") or "").strip().partition("\n")[0][:300]
        return Observation(state=state, native_reason=native, message=f"DLWorkspace: {words or 'the job failed'}")
    if state is JobState.CANCELLED:
        return Observation(state=state, message="it was killed on DLWorkspace")
    return Observation(state=state)
