"""What a Hive calls the state of a job → ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait, WaitCode

STATES = {
    "queued": JobState.PENDING,
    "running": JobState.RUNNING,
    "done": JobState.SUCCEEDED,
    "failed": JobState.FAILED,
    "stopped": JobState.CANCELLED,
}
UNHEARD_OF = Observation(state=JobState.LOST, message="the Hive knows nothing of this job")


def job_state(native: str) -> JobState:
    return STATES.get(native, JobState.UNKNOWN)


def job_report(job: Mapping[str, Any], page: str) -> Observation:
    """`job`: as the Hive tells it; `page`: where people look at it."""
    state, code, reason = job_state(job["state"]), job.get("exit"), job.get("reason", "")
    waits = state is JobState.PENDING and reason
    return Observation(
        state=state,
        exit_code=code if state in (JobState.SUCCEEDED, JobState.FAILED) and code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        native_reason="" if waits else reason or (f"exit code {code}" if state is JobState.FAILED else ""),
        started_ms=job.get("started_ms"),
        ended_ms=job.get("ended_ms"),
        wait=Wait(code=WaitCode.UNSCHEDULABLE, sentence=reason) if waits else None,
        link=page,
        place=job.get("machine", ""),
    )
