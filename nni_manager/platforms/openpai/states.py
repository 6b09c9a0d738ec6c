"""The states of OpenPAI as job states.

The rest-server derives `state` from the Framework's `subState` and exit code; -210 and -220 mean a stop::

    WAITING    AttemptCreationPending, AttemptCreationRequested, AttemptPreparing
    RUNNING    AttemptRunning, and Deletion…/AttemptCompleted without a stop
    STOPPING   the same with a stop
    STOPPED    Completed with a stop
    SUCCEEDED  Completed, 0
    FAILED     Completed, anything else
    UNKNOWN    anything else

If OpenPAI considers an end transient (a signal among the container's codes, a lost node, an evicted pod), the job does
not end: OpenPAI restarts it without limit, as another attempt of the same job. No field of a job prevents that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.web_services.jobs import StateTable

STATES: Mapping[str, JobState] = {
    "WAITING": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "STOPPING": JobState.RUNNING,
    "STOPPED": JobState.CANCELLED,
    "SUCCEEDED": JobState.SUCCEEDED,
    "FAILED": JobState.FAILED,
    "UNKNOWN": JobState.UNKNOWN,  # OpenPAI's state for a failure without a known cause
}
_WAITS = {
    "AttemptCreationPending": "it was accepted and not processed yet",
    "AttemptCreationRequested": "it is being created",
    "AttemptPreparing": "it waits for free machines, or for its image",
}
#: The exit code that replaces codes from 128 on. OpenPAI restarts jobs for most of those, without limit.
USER_CODE = 220
#: OpenPAI's exit code for all codes without a pattern; it has no other meaning.
_NO_PATTERN = 255
#: Failure phrases with a special meaning here.
_CAUSES = {
    "UserContainerDockerOOMKilled": Reason.OUT_OF_MEMORY,
    "ContainerTensorflowOOMKilled": Reason.OUT_OF_MEMORY,
}
#: Maximum size of a job's last lines in bytes.
_TAIL_BYTES = 2048
#: Status of the service → job state.
job_state = StateTable("OpenPAI", STATES).state


def report(entry: Mapping[str, Any], detail: Mapping[str, Any] | None = None) -> Observation:
    """The report on a job, from its list entry. `detail`: the `jobStatus` of a failed one."""
    state = job_state(str(entry.get("state")))
    started_ms, ended_ms = _moment(entry, "launchedTime"), _moment(entry, "completedTime")
    if not state.is_final:
        return Observation(state=state, wait=_wait(entry) if state is JobState.PENDING else None, started_ms=started_ms)
    end = _failure(detail or entry) if state is JobState.FAILED else _end(state)
    return replace(end, started_ms=started_ms, ended_ms=ended_ms)


def _end(state: JobState) -> Observation:
    if state is JobState.SUCCEEDED:
        return Observation(state=state, exit_code=0)
    return Observation(state=state, message="it was stopped on OpenPAI")


def _failure(detail: Mapping[str, Any]) -> Observation:
    """The report on a failed job. OpenPAI replaces exit codes; the runtime's output has the container's."""
    spec, said = _mapping(detail, "appExitSpec"), _mapping(_mapping(detail, "appExitMessages"), "runtime")
    phrase = _phrase(detail, spec, said)
    is_theirs = spec.get("type") == "PLATFORM_FAILURE"
    return Observation(
        state=JobState.PREEMPTED if is_theirs else JobState.FAILED,
        exit_code=None if is_theirs else _users_code(said),
        native_reason=phrase,
        cause=_CAUSES.get(phrase),
        message=_sentence(detail, spec, said, phrase),
        stderr_tail=_tail(said),
    )


def _users_code(said: Mapping[str, Any]) -> int | None:
    """The container's exit code; None: the runtime does not report it, or it was above 127."""
    code = said.get("originUserExitCode")
    return code if isinstance(code, int) and code != USER_CODE else None


def _phrase(detail: Mapping[str, Any], spec: Mapping[str, Any], said: Mapping[str, Any]) -> str:
    """OpenPAI's phrase for the failure; empty: no pattern matches the container's code."""
    if detail.get("appExitCode") == _NO_PATTERN and isinstance(said.get("originUserExitCode"), int):
        return ""
    return str(spec.get("phrase") or f"exit code {detail.get('appExitCode')}")


def _sentence(detail: Mapping[str, Any], spec: Mapping[str, Any], said: Mapping[str, Any], phrase: str) -> str:
    if not phrase:
        code = said["originUserExitCode"]
        end = "a code above 127, or by a signal" if code == USER_CODE else f"exit code {code}"
        return f"its container ended with {end}"
    words = str(spec.get("reason") or detail.get("appExitDiagnostics") or "").strip().partition("\n")[0][:300]
    return f"OpenPAI: {phrase}: {words}" if words else f"OpenPAI: {phrase}"


def _tail(said: Mapping[str, Any]) -> str:
    """The container's last lines, as far as OpenPAI stores them."""
    printed = str(_mapping(said, "errorLogs").get("user") or "")
    return printed.encode()[-_TAIL_BYTES:].decode(errors="ignore")


def _mapping(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = told.get(name)
    return found if isinstance(found, dict) else {}


def _wait(entry: Mapping[str, Any]) -> Wait:
    native = str(entry.get("subState"))
    explained = f"{native}: {_WAITS[native]}" if native in _WAITS else native
    if retries := entry.get("retries"):
        explained += f"; it restarted the job after platform failures ({retries} so far)"
    return Wait(code=WaitCode.SUBMITTED, sentence=f"OpenPAI says {explained}", details={"subState": native})


def _moment(entry: Mapping[str, Any], name: str) -> int | None:
    value = entry.get(name)
    return value if isinstance(value, int) else None
