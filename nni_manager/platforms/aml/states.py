"""The statuses of Azure Machine Learning as job states.

===============  ==========  ==============================================================
status           here        when
===============  ==========  ==============================================================
NotStarted       PENDING     accepted
Starting         PENDING     the service looks for a cluster
Provisioning     PENDING     nodes are starting
Preparing        PENDING     the image is built or pulled
Queued           PENDING     waits for nodes
Paused           PENDING     its queue is paused
Running          RUNNING     the command runs
Finalizing       RUNNING     outputs are stored
CancelRequested  RUNNING     a stop was requested
NotResponding    RUNNING     it does not respond, but may come back
Completed        SUCCEEDED   exit code 0
Failed           FAILED      another exit code, or the service could not run it
Canceled         CANCELLED   by the manager, or by a user in the studio
===============  ==========  ==============================================================

``Unknown`` and statuses that are not in the table change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.web_services.jobs import StateTable

STATES: Mapping[str, JobState] = {
    "NotStarted": JobState.PENDING,
    "Starting": JobState.PENDING,
    "Provisioning": JobState.PENDING,
    "Preparing": JobState.PENDING,
    "Queued": JobState.PENDING,
    "Paused": JobState.PENDING,
    "Running": JobState.RUNNING,
    "Finalizing": JobState.RUNNING,
    "CancelRequested": JobState.RUNNING,
    "NotResponding": JobState.RUNNING,
    "Completed": JobState.SUCCEEDED,
    "Failed": JobState.FAILED,
    "Canceled": JobState.CANCELLED,
    "Unknown": JobState.UNKNOWN,
}
_WAITS: Mapping[str, tuple[WaitCode, str]] = {
    "Provisioning": (WaitCode.UNSCHEDULABLE, "starts cluster nodes"),
    "Preparing": (WaitCode.IMAGE, "prepares the image"),
    "Queued": (WaitCode.UNSCHEDULABLE, "waits for cluster nodes"),
    "Paused": (WaitCode.UNSCHEDULABLE, "paused the job"),
}
#: Status of the service → job state.
job_state = StateTable("Azure ML", STATES).state


def job_report(job: Mapping[str, Any]) -> Observation:
    """The report on one job as the service returns it."""
    properties = job.get("properties") or {}
    status = str(properties.get("status") or "")
    state = job_state(status)
    code, what = _WAITS.get(status, (WaitCode.SUBMITTED, "accepted the job"))
    wait = Wait(code=code, sentence=f"Azure ML {what} ({status})", details={"status": status})
    return Observation(
        state=state,
        native_reason=status if state in (JobState.FAILED, JobState.CANCELLED) else "",
        message=f"Azure ML reports {status}; see the node's logs on the job's page" if state is JobState.FAILED else "",
        wait=wait if state is JobState.PENDING else None,
        link=link(job),
        place=str(properties.get("computeId") or "").rpartition("/")[2],
    )


def link(job: Mapping[str, Any]) -> str:
    """The address of a job's page in the studio."""
    services = (job.get("properties") or {}).get("services") or {}
    return str((services.get("Studio") or {}).get("endpoint") or "")
