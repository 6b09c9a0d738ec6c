"""Suspension of queued jobs, of any kind: before they ran it is a wait, afterwards a preemption that is not counted."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.domain.service import WaitCode
from nni_manager.kubernetes.api.names import REPORTS
from nni_manager.kubernetes.jobs.job_memory import JobMemory

pytestmark = pytest.mark.unit

_QUEUED = {"kueue.x-k8s.io/queue-name": "team"}
_EVICTED = [{"type": "Evicted", "status": "True", "reason": "Preempted", "message": "another's turn"}]


def job(labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"kind": "TFJob", "metadata": {"name": "n", "labels": labels}, "spec": spec}


def pod(phase: str, code: int) -> dict[str, Any]:
    ended = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}}
    meta = {"name": "n-worker-0", "labels": {REPORTS: "first"}, "deletionTimestamp": "2100-01-01T00:00:00Z"}
    statuses = [{"name": "c", "state": ended if phase == "Failed" else {"running": {}}}]
    return {"metadata": meta, "spec": {}, "status": {"phase": phase, "containerStatuses": statuses}}


def report(found: dict[str, Any], *pods: dict[str, Any], **fields: Any) -> Observation:
    memory = JobMemory(job_name="j", name="n", uid="", container="c", object=found, **fields)
    memory.pods = {one["metadata"]["name"]: one for one in pods}
    return memory.report(lambda _: Observation(state=JobState.PENDING), 1000.0)[0]


@pytest.mark.parametrize("spec", [{"suspend": True}, {"runPolicy": {"suspend": True}}])
def test_suspended_job_that_never_ran_waits_for_its_queue(spec: dict[str, Any]) -> None:
    found = report(job(_QUEUED, **spec))
    assert found.state is JobState.PENDING and found.wait is not None
    assert (found.wait.code, found.wait.sentence) == (WaitCode.QUOTA, "Kueue's queue team has not admitted the job yet")


@pytest.mark.parametrize("code", [0, 1, 143])
def test_job_suspended_after_it_ran_is_uncounted(code: int) -> None:
    suspended = job(_QUEUED, runPolicy={"suspend": True})
    assert report(suspended, pod("Running", code), has_run=True).state is JobState.RUNNING, "its pod still ends"
    found = report(suspended, pod("Failed", code), has_run=True)
    assert (found.state, found.is_uncounted, found.native_reason) == (JobState.PREEMPTED, True, "Suspended")
    assert found.message == "TFJob n was suspended by its queue"
    assert report(suspended, has_run=True).state is JobState.PREEMPTED, "its pod is gone"


def test_preemption_is_known_by_the_workload_alone() -> None:
    workload = {"spec": {"active": True}, "status": {"conditions": _EVICTED}}
    found = report(job(_QUEUED, suspend=True), workload=workload)
    assert (found.state, found.is_uncounted) == (JobState.PREEMPTED, True)
    assert found.message.endswith("was suspended by its queue: another's turn")


def test_preemption_without_return_is_counted() -> None:
    workload = {"spec": {"active": False}, "status": {"conditions": _EVICTED}}
    found = report(job(_QUEUED, suspend=True), workload=workload, has_run=True)
    assert (found.state, found.is_uncounted) == (JobState.PREEMPTED, False)
    assert found.message.endswith("was suspended by its queue: Kueue deactivated the job: another's turn")


def test_suspension_by_a_user_is_a_counted_preemption() -> None:
    found = report(job({}, suspend=True), has_run=True)
    assert (found.state, found.is_uncounted) == (JobState.PREEMPTED, False)
    assert found.message == "TFJob n was suspended"


_RAN: dict[str, dict[str, Any]] = {
    "its start is kept": {"status": {"startTime": "2026-01-01T00:00:00Z"}},
    "it was running": {"status": {"conditions": [{"type": "Running", "status": "False"}]}},
}


@pytest.mark.parametrize("status", _RAN.values(), ids=_RAN)
def test_suspension_before_this_process_is_seen(status: dict[str, Any]) -> None:
    """A Job's start does not show whether its pod ran."""
    found = report({**job({}, suspend=True), **status})
    assert (found.state, found.is_uncounted, found.message) == (JobState.PREEMPTED, False, "TFJob n was suspended")


def test_suspended_job_that_has_not_run_waits() -> None:
    assert report(job({}, suspend=True)).state is JobState.PENDING
