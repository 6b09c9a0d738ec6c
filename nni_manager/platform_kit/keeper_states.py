"""The keeper's states of a job → ours.

=======  ==========================================
keeper   JobState
=======  ==========================================
RUNNING  RUNNING
ENDED    SUCCEEDED for exit code 0, FAILED otherwise
LOST     LOST
=======  ==========================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nni_manager.domain.job import JobReport, JobState
from trial_runner import protocol


def job_report(job: Mapping[str, Any]) -> JobReport:
    """`job` as in `trial_runner.protocol`."""
    return JobReport(
        state=_state(job),
        exit_code=job.get("exit_code"),
        signal=job.get("signal"),
        stderr_tail=job.get("stderr_tail") or "",
        message=job.get("message") or "",
        started_ms=job.get("started_ms"),
        ended_ms=job.get("ended_ms"),
        place=(job.get("reservation") or {}).get("place", ""),
    )


def _state(job: Mapping[str, Any]) -> JobState:
    if job["state"] == protocol.RUNNING:
        return JobState.RUNNING
    if job["state"] == protocol.ENDED:
        return JobState.SUCCEEDED if job.get("exit_code") == 0 else JobState.FAILED
    return JobState.LOST if job["state"] == protocol.LOST else JobState.UNKNOWN
