"""Ends of Jobs and their pods: status, reason, retry, exit code and sentence; and states before the end."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import WaitCode
from nni_manager.domain.trial import explain, outcome
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.kubernetes.api.names import REPORTS
from nni_manager.kubernetes.jobs.job_memory import JobMemory
from nni_manager.platforms.kubernetes.states import report

pytestmark = pytest.mark.unit

_MOMENT = "2026-01-01T00:00:09Z"
_BACKOFF = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
_DEADLINE = ("DeadlineExceeded", "Job was active longer than specified deadline")
_RAISE = "raise activeDeadlineSeconds in the pod template, or in the policy of the cluster that sets it"
_DISRUPTED = ("PodFailurePolicy", "Pod n/j-x has condition DisruptionTarget matching FailJob rule at index 0")


def job(*true: str, reason: str = "", message: str = "", **status: Any) -> dict[str, Any]:
    """A Job with conditions; all have the same reason and message."""
    told = {"status": "True", "reason": reason, "message": message, "lastTransitionTime": _MOMENT}
    conditions = [{**told, "type": kind} for kind in true]
    return {"kind": "Job", "metadata": {"name": "j"}, "status": {"conditions": conditions, **status}}


def failed(reason: str, message: str) -> dict[str, Any]:
    return job("FailureTarget", "Failed", reason=reason, message=message, startTime="2026-01-01T00:00:01Z")


def pod(code: int | None = None, word: str = "Error", disrupted: str = "", **status: Any) -> dict[str, Any]:
    ended = {"terminated": {"exitCode": code, "reason": word, "finishedAt": _MOMENT, "message": "the last line"}}
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": disrupted}] if disrupted else []
    statuses = [{"name": "trial", "state": ended}] if code is not None else []
    told = {"phase": "Failed", "containerStatuses": statuses, "conditions": conditions, **status}
    return {"metadata": {"name": "j-x"}, "spec": {"nodeName": "node-1"}, "status": told}


_DELETED = pod(143)
_DELETED["metadata"]["deletionTimestamp"] = _MOMENT


def followed(found: dict[str, Any], *pods: dict[str, Any]) -> Observation:
    fields: dict[str, Any] = {"memory_field": "trialMemorySize", "has_all_pods": True}
    memory = JobMemory(job_name="trial", name="j", uid="", container="trial", object=found, **fields)
    memory.pods = {one["metadata"]["name"]: one for one in pods}
    return memory.report(report, 1000.0)[0]


@pytest.mark.parametrize(
    ("found", "pods", "status", "reason", "code", "sentence"),
    [
        (job("SuccessCriteriaMet", "Complete"), [], TrialStatus.SUCCEEDED, Reason.NONE, None, "Complete"),
        (
            failed(*_BACKOFF),
            [pod(1)],
            TrialStatus.FAILED,
            Reason.USER_CODE,
            1,
            "Job has reached the specified backoff limit; pod j-x: Error",
        ),
        (
            failed(*_BACKOFF),
            [pod(137, "OOMKilled")],
            TrialStatus.FAILED,
            Reason.OUT_OF_MEMORY,
            137,
            "Job has reached the specified backoff limit; pod j-x: OOMKilled; raise trialMemorySize",
        ),
        (failed(*_BACKOFF), [], TrialStatus.FAILED, Reason.USER_CODE, None, _BACKOFF[1]),
        (failed(*_DEADLINE), [], TrialStatus.FAILED, Reason.TIMEOUT, None, f"{_DEADLINE[1]}; {_RAISE}"),
        (failed(*_DEADLINE), [_DELETED], TrialStatus.FAILED, Reason.TIMEOUT, 143, f"{_DEADLINE[1]}; {_RAISE}"),
        (
            failed(*_BACKOFF),
            [pod(reason="DeadlineExceeded", message="Pod was active too long")],
            TrialStatus.FAILED,
            Reason.TIMEOUT,
            None,
            f"{_BACKOFF[1]}; pod j-x: DeadlineExceeded; Pod was active too long; {_RAISE}",
        ),
        (
            failed(*_BACKOFF),
            [pod(reason="OutOfcpu", message="no room")],
            TrialStatus.WAITING,
            Reason.PREEMPTED,
            None,
            "Job has reached the specified backoff limit; pod j-x: OutOfcpu; no room",
        ),
        (
            failed(*_DISRUPTED),
            [pod(143, disrupted="PreemptionByScheduler")],
            TrialStatus.WAITING,
            Reason.PREEMPTED,
            143,
            f"{_DISRUPTED[1]}; pod j-x: PreemptionByScheduler",
        ),
        (
            failed(*_DISRUPTED),
            [pod(1, disrupted="EvictionByEvictionAPI")],
            TrialStatus.WAITING,
            Reason.PREEMPTED,
            1,
            f"{_DISRUPTED[1]}; pod j-x: EvictionByEvictionAPI",
        ),
        (failed(*_DISRUPTED), [], TrialStatus.WAITING, Reason.PREEMPTED, None, _DISRUPTED[1]),
        (
            failed("PodFailurePolicy", "Container trial for pod n/j-x failed with exit code 3 matching FailJob rule"),
            [pod(3)],
            TrialStatus.FAILED,
            Reason.USER_CODE,
            3,
            "Container trial for pod n/j-x failed with exit code 3 matching FailJob rule; pod j-x: Error",
        ),
    ],
)
def test_end_of_a_job_has_status_reason_and_sentence(
    found: dict[str, Any],
    pods: list[dict[str, Any]],
    status: TrialStatus,
    reason: Reason,
    code: int | None,
    sentence: str,
) -> None:
    seen = followed(found, *pods)
    verdict = outcome(seen, None, platform_retries=1, user_retries=0)
    assert (verdict.status, verdict.reason, seen.exit_code) == (status, reason, code)
    assert explain(seen) == sentence
    assert seen.ended_ms is not None


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (job(), JobState.PENDING),
        (job(active=1, ready=0), JobState.PENDING),
        (job(active=1, ready=None), JobState.PENDING),
        (job(active=1, ready=1), JobState.RUNNING),
        (job("FailureTarget", reason="BackoffLimitExceeded", ready=0), JobState.RUNNING),
        (job("SuccessCriteriaMet", ready=0), JobState.RUNNING),
        (job("Suspended", reason="JobSuspended"), JobState.PENDING),
        (job("SomebodysOwn", active=1), JobState.PENDING),
        (job("SomebodysOwn"), JobState.UNKNOWN),
    ],
)
def test_interim_condition_is_not_an_end(found: dict[str, Any], state: JobState) -> None:
    assert report(found).state is state


def test_job_that_fails_while_it_is_deleted_is_cancelled() -> None:
    """The controller may count the end of a deleted pod before it knows of the deletion of the Job."""
    found = failed(*_BACKOFF)
    found["metadata"]["deletionTimestamp"] = _MOMENT
    seen = followed(found, _DELETED)
    assert (seen.state, seen.message) == (JobState.CANCELLED, "Job j was deleted in the cluster")
    assert followed(found, pod(1)).state is JobState.FAILED, "it failed before"


def test_pod_that_ends_at_the_time_limit_is_not_preempted() -> None:
    """The Job's end comes after its pod's, perhaps much later."""
    found = job("FailureTarget", reason="DeadlineExceeded", message=_DEADLINE[1])
    memory = JobMemory(job_name="trial", name="j", uid="", container="trial", object=found)
    memory.pods = {"j-x": {**_DELETED, "metadata": {**_DELETED["metadata"], "labels": {REPORTS: "true"}}}}
    assert [memory.report(report, now_s)[0].state for now_s in (1000.0, 1100.0)] == [JobState.RUNNING] * 2


@pytest.mark.parametrize(
    ("labels", "code", "sentence"),
    [
        ({}, WaitCode.SUBMITTED, "the Job is suspended"),
        ({"kueue.x-k8s.io/queue-name": "team"}, WaitCode.QUOTA, "Kueue's queue team has not admitted the job yet"),
    ],
)
def test_suspended_job_states_its_wait(labels: dict[str, str], code: WaitCode, sentence: str) -> None:
    found = job("Suspended")
    found["metadata"]["labels"], found["spec"] = labels, {"suspend": True}
    wait = followed(found).wait
    assert wait is not None and (wait.code, wait.sentence) == (code, sentence)
