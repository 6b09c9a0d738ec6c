"""What pods and events say of a job: why it waits, and how it ended."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import WaitCode
from nni_manager.kubernetes.api.names import REPORTS
from nni_manager.kubernetes.jobs import evidence
from nni_manager.kubernetes.jobs.job_memory import STUCK_S, JobMemory

pytestmark = pytest.mark.unit


def pod(
    name: str = "p-0", phase: str = "Running", state: dict[str, Any] | None = None, **status: Any
) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "state": state}] if state else []
    return {"metadata": {"name": name}, "status": {"phase": phase, "containerStatuses": containers, **status}}


def ended(code: int, reason: str = "Error", **fields: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": "2026-01-01T00:00:00Z", **fields}}


def memory(state: JobState, *pods: dict[str, Any], **fields: Any) -> Observation:
    one = JobMemory(job_name="j", name="n", uid="u", container="c", object={"kind": "TFJob"}, **fields)
    one.pods = {pod["metadata"]["name"]: pod for pod in pods}
    return one.report(lambda _: Observation(state=state, native_reason="told"), 1000.0)[0]


@pytest.mark.parametrize(
    ("found", "state", "reason", "code"),
    [
        (pod(phase="Failed", state=ended(3)), JobState.FAILED, "told", 3),
        (pod(phase="Failed", state=ended(137, "OOMKilled")), JobState.FAILED, "OOMKilled", 137),
        (pod(phase="Failed"), JobState.PREEMPTED, "told", None),
        (pod(phase="Failed", reason="OutOfnvidia.com/gpu"), JobState.PREEMPTED, "OutOfnvidia.com/gpu", None),
        (pod(phase="Failed", reason="TopologyAffinityError"), JobState.PREEMPTED, "TopologyAffinityError", None),
        (pod(phase="Failed", reason="OutOfcpu", state=ended(143)), JobState.PREEMPTED, "OutOfcpu", 143),
        (pod(phase="Failed", reason="DeadlineExceeded"), JobState.FAILED, "DeadlineExceeded", None),
        (pod(phase="Failed", reason="DeadlineExceeded", state=ended(137)), JobState.FAILED, "DeadlineExceeded", 137),
        (pod(phase="Failed", reason="Evicted", message="low on memory"), JobState.PREEMPTED, "Evicted", None),
        (pod(phase="Failed", state=ended(143), reason="NodeLost"), JobState.PREEMPTED, "NodeLost", 143),
        (
            pod(
                phase="Failed",
                state=ended(143),
                conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
            ),
            JobState.PREEMPTED,
            "PreemptionByScheduler",
            143,
        ),
    ],
)
def test_evidence_of_failed_jobs(found: dict[str, Any], state: JobState, reason: str, code: int | None) -> None:
    report = memory(JobState.FAILED, found)
    assert (report.state, report.native_reason, report.exit_code) == (state, reason, code)


def test_first_pod_that_failed_by_itself_explains_the_job() -> None:
    later = pod("p-1", "Failed", ended(143, finishedAt="2026-01-01T00:00:09Z"))
    assert memory(JobState.FAILED, later, pod("p-0", "Failed", ended(5, message="boom"))).stderr_tail == "boom"


@pytest.mark.parametrize(
    ("knows", "keeps", "state"),
    [(True, True, JobState.PREEMPTED), (False, True, JobState.FAILED), (True, False, JobState.FAILED)],
)
def test_failed_job_without_its_pod_is_preempted(knows: bool, keeps: bool, state: JobState) -> None:
    """Operators that remove failed pods, and pods that cannot be listed, prove nothing."""
    report = memory(JobState.FAILED, has_all_pods=True, knows_all_pods=knows, keeps_failed_pods=keeps)
    assert (report.state, report.exit_code) == (state, None)


LATER = 1000.0


def taken(name: str = "p-0", created: str = "1", code: int = 143) -> dict[str, Any]:
    """A pod that reports, and was deleted while it ran."""
    one = pod(name, "Failed" if code else "Succeeded", ended(code))
    meta = {"labels": {REPORTS: "yes"}, "creationTimestamp": created, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return {**one, "metadata": {"name": name, **meta}}


def ran(*gone: dict[str, Any], alive: tuple[dict[str, Any], ...] = (), **fields: Any) -> JobState:
    """The state long after the pods were gone, of a job that its operator says runs."""
    one = JobMemory(job_name="j", name="n", uid="u", container="c", object={}, **fields)
    one.gone_pods = {pod["metadata"]["name"]: pod for pod in gone}
    one.pods = {pod["metadata"]["name"]: pod for pod in alive}
    read = lambda _: Observation(state=JobState.RUNNING)  # noqa: E731
    found, again_s = one.report(read, 0.0)
    assert found.state is JobState.RUNNING, "its operator has a moment to say more"
    return one.report(read, LATER if again_s is None else again_s)[0].state


def test_removed_pod_ends_attempt_while_operator_is_down() -> None:
    assert ran(taken()) is JobState.PREEMPTED
    assert ran(alive=(taken(),)) is JobState.PREEMPTED
    assert ran(taken(), is_restarted=True) is JobState.RUNNING, "the operator starts it again"
    assert ran(taken(), is_cancelled=True) is JobState.RUNNING, "it was stopped by us"
    assert ran(taken(code=1)) is JobState.RUNNING, "it failed by itself, which its runner says"
    assert ran(taken(code=0)) is JobState.RUNNING, "it has done what it should, and was cleaned up"


def test_second_pod_of_operator_continues() -> None:
    second = {**taken("q-0", created="2"), "status": {"phase": "Running"}}
    del second["metadata"]["deletionTimestamp"]
    assert ran(taken("p-0", created="1"), alive=(second,)) is JobState.RUNNING


def test_deleted_job_is_cancelled_and_missing_job_is_lost() -> None:
    assert memory(JobState.RUNNING, removed_s=999.0, was_deleted=True).state is JobState.CANCELLED
    assert memory(JobState.RUNNING, removed_s=999.0).state is JobState.LOST
    assert memory(JobState.RUNNING, pod(), removed_s=999.0).state is JobState.RUNNING, "while its pods end"
    assert memory(JobState.SUCCEEDED, removed_s=999.0).state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("reason", "code"),
    [("ImagePullBackOff", WaitCode.IMAGE), ("CreateContainerConfigError", WaitCode.SUBMITTED)],
)
def test_container_that_cannot_be_created_rejects_job(reason: str, code: WaitCode) -> None:
    waiting = {"waiting": {"reason": reason, "message": "not found"}}
    one = JobMemory(job_name="j", name="n", uid="u", container="c", object={}, pods={"p": pod("p", "Pending", waiting)})
    read = lambda _: Observation(state=JobState.PENDING)  # noqa: E731
    report, again_s = one.report(read, 0.0)
    assert report.wait is not None and report.wait.code is code and again_s == STUCK_S
    report = one.report(read, STUCK_S)[0]
    assert (report.state, report.cause) == (JobState.FAILED, Reason.SUBMIT_REJECTED)
    assert report.native_reason == reason
    assert "not found" in report.message


def test_invalid_image_name_is_a_hopeless_wait() -> None:
    waiting = {"waiting": {"reason": "InvalidImageName", "message": "couldn't parse image name"}}
    one = JobMemory(job_name="j", name="n", uid="u", container="c", object={}, pods={"p": pod("p", "Pending", waiting)})
    for now_s in (0.0, STUCK_S, 10 * STUCK_S):
        report, again_s = one.report(lambda _: Observation(state=JobState.PENDING), now_s)
        assert (report.state, again_s) == (JobState.PENDING, None)
        assert report.wait is not None and report.wait.code is WaitCode.IMAGE and report.wait.is_hopeless
        assert "couldn't parse image name" in report.wait.sentence


def test_pending_job_that_ran_is_being_restarted() -> None:
    one = JobMemory(job_name="j", name="n", uid="u", container="c", object={})
    states = iter([JobState.PENDING, JobState.RUNNING, JobState.PENDING])
    read = lambda _: Observation(state=next(states))  # noqa: E731
    assert [one.report(read, 0.0)[0].state for _ in range(3)] == [JobState.PENDING, JobState.RUNNING, JobState.RUNNING]


@pytest.mark.parametrize(
    ("reason", "message", "code"),
    [
        ("FailedScheduling", "0/3 nodes are available", WaitCode.UNSCHEDULABLE),
        ("FailedCreatePod", 'pods "x" is forbidden: exceeded quota: team', WaitCode.QUOTA),
        ("FailedMount", "configmap not found", WaitCode.SUBMITTED),
    ],
)
def test_events_say_why_a_job_waits(reason: str, message: str, code: WaitCode) -> None:
    event = {"metadata": {"name": "e"}, "reason": reason, "message": message, "involvedObject": {"name": "p"}}
    found = evidence.wait([], [event])
    assert found is not None and found.code is code and message in found.sentence


@pytest.mark.parametrize(
    ("reason", "message", "is_denied"),
    [
        ("FailedCreatePod", 'Error creating: admission webhook "p" denied the request: no', True),
        ("FailedCreatePod", 'Error creating: pods "x" is forbidden: violates PodSecurity "restricted"', True),
        ("FailedCreatePod", 'Error creating: pods "x" is forbidden: exceeded quota: team', False),
        ("FailedCreatePod", 'Error creating: pods "x" is forbidden: namespace n is being terminated', False),
        ("FailedMount", "access is forbidden", False),
    ],
)
def test_refused_pods_are_told_from_passing_trouble(reason: str, message: str, is_denied: bool) -> None:
    event = {"metadata": {"name": "e"}, "reason": reason, "message": message, "involvedObject": {"name": "p"}}
    assert (evidence.denial([], [event]) is not None) is is_denied
    assert evidence.denial([pod()], [event]) is None
