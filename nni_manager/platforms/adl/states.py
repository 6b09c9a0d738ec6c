"""The phases of an AdaptDLJob as job states. A running job may go back to Pending: it is being given other nodes."""

from __future__ import annotations

from typing import Any

from nni_manager.domain.job import JobReport, JobState
from nni_manager.platform_kit.kubernetes.client import Object
from nni_manager.platform_kit.kubernetes.evidence import milliseconds

PHASES = {
    "Pending": JobState.PENDING,
    "Starting": JobState.PENDING,
    "Running": JobState.RUNNING,
    "Stopping": JobState.RUNNING,
    "Succeeded": JobState.SUCCEEDED,
    "Failed": JobState.FAILED,
}


def state_of(phase: str) -> JobState:
    """The state that a `status.phase` stands for, of a job that has not run yet."""
    return PHASES.get(phase, JobState.UNKNOWN)


def report(job: Object) -> JobReport:
    """The report on an AdaptDLJob as the API gives it. `group` counts the times that pods were made: the first is 0."""
    status: dict[str, Any] = job.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    state = state_of(phase)
    has_run = _number(status.get("group")) > 0 or (phase == "Pending" and "group" in status)
    if state is JobState.PENDING and has_run:
        state = JobState.RUNNING
    return JobReport(
        state=state, native_reason=str(status.get("reason") or phase), message=str(status.get("message") or ""),
        ended_ms=milliseconds(status.get("completionTimestamp")) if state.is_final else None,
    )  # fmt: skip


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
