"""The states of OpenPAI as job states.

The rest-server makes `state` of the Framework's `subState` and exit code; -210 and -220 are those of a stop::

    WAITING    AttemptCreationPending, AttemptCreationRequested, AttemptPreparing
    RUNNING    AttemptRunning, and Deletion…/AttemptCompleted without a stop
    STOPPING   the same with a stop
    STOPPED    Completed with a stop
    SUCCEEDED  Completed, 0
    FAILED     Completed, anything else
    UNKNOWN    anything else
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nni_manager.domain.job import JobReport, JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.platform_kit.state_table import StateTable

STATES: Mapping[str, JobState] = {
    "WAITING": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "STOPPING": JobState.RUNNING,
    "STOPPED": JobState.CANCELLED,
    "SUCCEEDED": JobState.SUCCEEDED,
    "FAILED": JobState.FAILED,
    "UNKNOWN": JobState.UNKNOWN,  # to them it is no failure of anybody
}
_WAITS = {
    "AttemptCreationPending": "it was accepted and is not looked at yet",
    "AttemptCreationRequested": "it is being created",
    "AttemptPreparing": "it waits for machines that have room, or for its image",
}
#: The exit code in place of those from 128 on, which OpenPAI takes for troubles of its own: after some it starts again.
USER_CODE = 220
#: Phrases of a failure that decide something here.
_CAUSES = {
    "UserContainerDockerOOMKilled": Reason.OUT_OF_MEMORY,
    "ContainerTensorflowOOMKilled": Reason.OUT_OF_MEMORY,
}
_TABLE = StateTable("OpenPAI", STATES)


def job_state(native: str) -> JobState:
    return _TABLE.state(native)


def needs_detail(entry: Mapping[str, Any]) -> bool:
    """Whether the list does not say why a job failed: codes below 0 are the cluster's own."""
    code = entry.get("appExitCode")
    return entry.get("state") == "FAILED" and (not isinstance(code, int) or code < 0)


def report(entry: Mapping[str, Any], detail: Mapping[str, Any] | None = None) -> JobReport:
    """The report on a job, by its entry in the list; `detail`: its `jobStatus`, where `needs_detail`."""
    state = job_state(str(entry.get("state")))
    started_ms, ended_ms = _moment(entry, "launchedTime"), _moment(entry, "completedTime")
    if not state.is_final:
        return JobReport(state=state, wait=_wait(entry) if state is JobState.PENDING else None, started_ms=started_ms)
    end = _end(state, entry) if detail is None else _failure(detail)
    return replace(end, started_ms=started_ms, ended_ms=ended_ms)


def _end(state: JobState, entry: Mapping[str, Any]) -> JobReport:
    if state is JobState.SUCCEEDED:
        return JobReport(state=state, exit_code=0)
    if state is JobState.CANCELLED:
        return JobReport(state=state, message="it was stopped on OpenPAI")
    code = entry.get("appExitCode")
    if not isinstance(code, int) or code == USER_CODE:
        return JobReport(state=state, native_reason="the command ended with a code above 127")
    return JobReport(state=state, exit_code=code, message=f"its container ended with exit code {code}")


def _failure(detail: Mapping[str, Any]) -> JobReport:
    """The report on a failed job by the cluster's own exit codes, which it explains itself."""
    spec = detail.get("appExitSpec") or {}
    phrase = str(spec.get("phrase") or f"exit code {detail.get('appExitCode')}")
    is_theirs = spec.get("type") == "PLATFORM_FAILURE"
    words = str(spec.get("reason") or detail.get("appExitDiagnostics") or "").strip().partition("\n")[0][:300]
    return JobReport(
        state=JobState.PREEMPTED if is_theirs else JobState.FAILED,
        native_reason=phrase,
        cause=_CAUSES.get(phrase),
        message=f"OpenPAI: {phrase}: {words}" if words else f"OpenPAI: {phrase}",
    )


def _wait(entry: Mapping[str, Any]) -> Wait:
    native = str(entry.get("subState"))
    explained = f"{native}: {_WAITS[native]}" if native in _WAITS else native
    return Wait(code=WaitCode.SUBMITTED, sentence=f"OpenPAI says {explained}", details={"subState": native})


def _moment(entry: Mapping[str, Any], name: str) -> int | None:
    value = entry.get(name)
    return value if isinstance(value, int) else None
