"""The statuses of PAI-DLC as job states.

==================  ==========  =======================================================================
status              here        when
==================  ==========  =======================================================================
Creating            PENDING     accepted
Created             PENDING     in older versions of the service
Waiting             PENDING     in older versions
Queued              PENDING     in older versions
Queuing             PENDING     waits for resources
Bidding             PENDING     the service bids for spot instances
EnvPreparing        PENDING     machines, mounts and images are being prepared
SanityChecking      PENDING     machines are being tested
Running             RUNNING     a container runs
Restarting          RUNNING     it is restarting
Stopping            RUNNING     a stop was requested
SucceededReserving  SUCCEEDED   it has ended; its machines are reserved (and billed) for a while
Succeeded           SUCCEEDED   it has ended
Completed           SUCCEEDED   in older versions
FailedReserving     FAILED      it has ended; its machines are reserved (and billed) for a while
Failed              FAILED      it has ended
Stopped             CANCELLED   by the manager, or by a user in the console
==================  ==========  =======================================================================

A job that ended because its machines were reclaimed is PREEMPTED. Its sub-status, the reason of its last status, or the
record of a failed restart shows that; the vendor does not document the texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import milliseconds
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.web_services.jobs import StateTable

STATES: Mapping[str, JobState] = {
    "Creating": JobState.PENDING,
    "Created": JobState.PENDING,
    "Waiting": JobState.PENDING,
    "Queued": JobState.PENDING,
    "Queuing": JobState.PENDING,
    "Bidding": JobState.PENDING,
    "EnvPreparing": JobState.PENDING,
    "SanityChecking": JobState.PENDING,
    "Running": JobState.RUNNING,
    "Restarting": JobState.RUNNING,
    "Stopping": JobState.RUNNING,
    "SucceededReserving": JobState.SUCCEEDED,
    "Succeeded": JobState.SUCCEEDED,
    "Completed": JobState.SUCCEEDED,
    "FailedReserving": JobState.FAILED,
    "Failed": JobState.FAILED,
    "Stopped": JobState.CANCELLED,
}
_WAITS: Mapping[str, tuple[WaitCode, str]] = {
    "Waiting": (WaitCode.UNSCHEDULABLE, "waits for resources"),
    "Queued": (WaitCode.UNSCHEDULABLE, "waits for resources"),
    "Queuing": (WaitCode.UNSCHEDULABLE, "waits for resources"),
    "Bidding": (WaitCode.UNSCHEDULABLE, "bids for spot instances"),
    "EnvPreparing": (WaitCode.IMAGE, "prepares machines, storage and image"),
    "SanityChecking": (WaitCode.SUBMITTED, "tests the machines"),
}
#: Status of the service → job state.
job_state = StateTable("PAI-DLC", STATES).state
#: Signs of reclaimed machines in the service's codes and messages.
_TAKEN_AWAY = re.compile(r"preempt|evict|reclaim|spot.{0,20}(releas|recycl|interrupt|terminat)", re.IGNORECASE)


def job_report(item: Mapping[str, Any], link: str) -> Observation:
    """The report on one job as ListJobs and GetJob return it."""
    status = str(item.get("Status") or "")
    state = _state(status, item)
    return Observation(
        state=state,
        native_reason=str(item.get("ReasonCode") or "") if state is not JobState.SUCCEEDED else "",
        message=str(item.get("ReasonMessage") or "") if state in _REASONED else "",
        started_ms=milliseconds(item.get("GmtRunningTime")),
        ended_ms=milliseconds(item.get("GmtFinishTime")) if state.is_final else None,
        wait=_wait(status, item) if state is JobState.PENDING else None,
        link=link,
        place=_place(item),
    )


_REASONED = (JobState.FAILED, JobState.CANCELLED, JobState.PREEMPTED)


def _state(status: str, item: Mapping[str, Any]) -> JobState:
    """The state of a job; PREEMPTED if the events of its end say so. Earlier events do not count: the service may
    have restarted the job after them."""
    state = job_state(status)
    if state is JobState.CANCELLED:
        words: Iterator[object] = iter((item.get("ReasonCode"),))
    else:
        words = _words_about_the_end(item)
    is_reasoned = state in (JobState.FAILED, JobState.CANCELLED)
    return JobState.PREEMPTED if is_reasoned and any(_TAKEN_AWAY.search(str(word)) for word in words) else state


def _words_about_the_end(item: Mapping[str, Any]) -> Iterator[object]:
    yield from (item.get("SubStatus"), item.get("ReasonCode"), item.get("ReasonMessage"))
    for change in (item.get("StatusHistory") or ())[-1:]:
        yield from (change.get("ReasonCode"), change.get("ReasonMessage"))
    for record in (item.get("RestartRecord") or ())[-1:]:
        if record.get("RestartStatus") == "Failed":
            yield from (record.get("Reason"), record.get("RestartFailReason"))


def _wait(status: str, item: Mapping[str, Any]) -> Wait:
    code, sentence = _WAITS.get(status, (WaitCode.SUBMITTED, "accepted the job"))
    reason = str(item.get("ReasonMessage") or "").strip()
    details = {"status": status, "reason": str(item.get("ReasonCode") or "")}
    return Wait(code=code, sentence=f"PAI-DLC {sentence} ({status}{': ' + reason if reason else ''})", details=details)


def _place(item: Mapping[str, Any]) -> str:
    pods = item.get("Pods") or ()
    nodes = dict.fromkeys(str(name) for name in (*(item.get("NodeNames") or ()), *(p.get("NodeName") for p in pods)))
    return ", ".join(name for name in nodes if name not in ("", "None"))
