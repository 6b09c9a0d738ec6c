"""Ends of jobs by clusters and by commands, and reasons of waiting jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.kubernetes.jobs import job_memory
from nni_manager.kubernetes.platform import KubernetesPlatform
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing.observing import accepted, running, seen, seen_as
from tests.platforms.adl.test_adl_contract import TestAdaptDLJob as AdaptDL
from tests.platforms.frameworkcontroller.test_frameworkcontroller_contract import TestFramework as Framework
from tests.platforms.kubeflow.test_kubeflow_contract import TestPyTorchJob as PyTorch
from tests.platforms.kubeflow.test_kubeflow_contract import TestTFJob as TF
from tests.platforms.kubernetes.test_batch_job_contract import TestBatchJob as BatchJob
from tests.platforms.kubernetes_world import KubernetesWorld

pytestmark = [pytest.mark.contract]

MakeWorld = Callable[[Path], KubernetesWorld]
WORLDS: dict[str, MakeWorld] = {
    "tfjobs": TF().make_world,
    "pytorchjobs": PyTorch().make_world,
    "frameworks": Framework().make_world,
    "adaptdljobs": AdaptDL().make_world,
    "jobs": BatchJob().make_world,
}
CONTROLLERS = {
    "tfjobs": "TFJob",
    "pytorchjobs": "PyTorchJob",
    "frameworks": "Framework",
    "adaptdljobs": "AdaptDLJob",
    "jobs": "Job",
}
every_kind = pytest.mark.parametrize("kind", WORLDS)


@every_kind
async def test_evicted_pod_is_preempted(tmp_path: Path, kind: str) -> None:
    async with WORLDS[kind](tmp_path) as world, world.make() as platform:
        handle = await running(world, platform, "a")
        world.control.evict("default", world.pods(handle)[0]["metadata"]["name"])
        await seen(world, platform, handle, JobState.PREEMPTED)


_MEMORY_FIELDS = {
    "tfjobs": "memorySize of the role",
    "pytorchjobs": "memorySize of the role",
    "frameworks": "memorySize of the role",
    "adaptdljobs": "trialMemorySize",
    "jobs": "trialMemorySize",
}


@every_kind
async def test_job_out_of_memory_names_the_field_to_raise(tmp_path: Path, kind: str) -> None:
    async with WORLDS[kind](tmp_path) as world, world.make() as platform:
        handle = await running(world, platform, "a")
        world.control.oom_kill("default", world.pods(handle)[0]["metadata"]["name"])
        report = await seen(world, platform, handle, JobState.FAILED)
        assert report.cause is Reason.OUT_OF_MEMORY
        assert report.message.endswith(f": OOMKilled; raise {_MEMORY_FIELDS[kind]}")


async def test_memory_of_a_template_is_raised_in_its_file(tmp_path: Path) -> None:
    pod = {"spec": {"containers": [{"name": "main", "image": "i", "command": ["true"]}]}}
    template, file = {"spec": {"taskRoles": [{"name": "worker", "task": {"pod": pod}}]}}, tmp_path / "framework.yml"
    file.write_text(yaml.safe_dump(template))
    async with WORLDS["frameworks"](tmp_path) as world:
        platform = world.make(taskRoles=None, configPath=str(file))
        assert isinstance(platform, KubernetesPlatform)
        assert platform.job_kind().memory_field == "the memory limit in the file at configPath"


@every_kind
async def test_pod_evicted_while_disconnected_is_preempted(tmp_path: Path, kind: str) -> None:
    async with WORLDS[kind](tmp_path) as world:
        async with world.make() as platform:
            handle = await running(world, platform, "a")
        world.control.evict("default", world.pods(handle)[0]["metadata"]["name"])
        await world.ended_there(handle)
        await world.restart()
        async with world.make() as platform:
            await seen(world, platform, handle, JobState.PREEMPTED)


@pytest.mark.parametrize("kind", ["tfjobs", "pytorchjobs"])
async def test_pod_drained_while_disconnected_is_preempted(tmp_path: Path, kind: str) -> None:
    """A drain deletes the pod, so that nothing shows an exit code."""
    async with WORLDS[kind](tmp_path) as world:
        async with world.make() as platform:
            handle = await running(world, platform, "a")
        world.control.delete("pods", "default", world.pods(handle)[0]["metadata"]["name"])
        await world.ended_there(handle)
        await world.gone_there(handle)
        await world.restart()
        async with world.make() as platform:
            report = await seen(world, platform, handle, JobState.PREEMPTED)
        assert report.exit_code is None


NO_ROOM = "Node didn't have enough resource: cpu, requested: 4000, used: 61000, capacity: 64000"


@every_kind
async def test_pod_refused_by_its_node_is_preempted(tmp_path: Path, kind: str) -> None:
    async with WORLDS[kind](tmp_path) as world, world.make() as platform:
        world.control.reject(".", "OutOfcpu", NO_ROOM)
        handle = await accepted(world, platform, "a")
        world.control.schedulable()
        report = await seen(world, platform, handle, JobState.PREEMPTED)
        assert (report.native_reason, report.exit_code) == ("OutOfcpu", None)
        assert NO_ROOM in report.message


async def test_pod_refused_by_node_while_disconnected_is_preempted(tmp_path: Path) -> None:
    async with WORLDS["frameworks"](tmp_path) as world:
        async with world.make() as platform:
            handle = await accepted(world, platform, "a")
        world.control.reject(".", "OutOfcpu", NO_ROOM)
        world.control.schedulable()
        await world.ended_there(handle)
        await world.restart()
        async with world.make() as platform:
            report = await seen(world, platform, handle, JobState.PREEMPTED)
        assert report.native_reason == "OutOfcpu" and NO_ROOM in report.message


async def test_pod_refused_by_server_is_not_a_user_failure(tmp_path: Path) -> None:
    async with WORLDS["frameworks"](tmp_path) as world, world.make(serviceAccountName="absent") as platform:
        handle = await accepted(world, platform, "a")
        report = await seen(world, platform, handle, JobState.FAILED)
        assert (report.cause, report.native_reason) == (Reason.SUBMIT_REJECTED, "PodCreationUnknownError")
        assert report.message.endswith('service account default/absent: serviceaccount "absent" not found')
        assert "ErrStatus" not in report.message


@every_kind
async def test_pod_deleted_by_a_drain_is_preempted(tmp_path: Path, kind: str) -> None:
    async with WORLDS[kind](tmp_path) as world, world.make() as platform:
        handle = await running(world, platform, "a")
        world.control.delete("pods", "default", world.pods(handle)[0]["metadata"]["name"])
        await seen(world, platform, handle, JobState.PREEMPTED)


@every_kind
async def test_pod_evicted_without_its_operator_is_preempted(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drained node was its own, as it happens: the job says that it runs, and its pod is gone."""
    monkeypatch.setattr(job_memory, "_NOTICED_S", 0.1)
    async with WORLDS[kind](tmp_path) as world, world.make() as platform:
        handle = await running(world, platform, "a")
        world.control.pause(CONTROLLERS[kind])
        world.control.delete("pods", "default", world.pods(handle)[0]["metadata"]["name"])
        report = await seen(world, platform, handle, JobState.PREEMPTED)
        assert report.native_reason == "Deleted"


@pytest.mark.parametrize("kind", ["tfjobs", "pytorchjobs"])
@pytest.mark.parametrize("release", ["v1.7.0", "v1.8.1"])
async def test_operator_warning_does_not_hide_a_quota(tmp_path: Path, kind: str, release: str) -> None:
    async with WORLDS[kind](tmp_path) as world, world.make() as platform:
        world.server.cluster.settings.operator_version = release
        world.use_up_quota()
        handle = await accepted(world, platform, "a")
        await waiting(world, platform, handle, lambda wait: wait.code is WaitCode.QUOTA)


async def waiting(
    world: KubernetesWorld, platform: Platform[Any], handle: JobHandle, holds: Callable[[Wait], bool]
) -> Wait:
    """The wait reason of a job, once the condition holds for it."""
    found = await seen_as(
        world, platform, handle, lambda one: one.wait is not None and holds(one.wait), "waiting for this reason"
    )
    assert found.wait is not None
    return found.wait


@every_kind
async def test_job_ignored_by_its_operator_says_so(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_memory, "_UNMADE_S", 0.1)
    async with WORLDS[kind](tmp_path) as world, world.make() as platform:
        world.control.pause(CONTROLLERS[kind])
        handle = await accepted(world, platform, "a")
        wait = await waiting(world, platform, handle, lambda wait: "has no pod yet" in wait.sentence)
        assert wait.code is WaitCode.SUBMITTED and wait.sentence.startswith(f"{CONTROLLERS[kind]} nni")
        assert "its operator has not acted on it" in wait.sentence


async def test_quota_without_an_event_is_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_memory, "_UNMADE_S", 0.1)
    async with WORLDS["frameworks"](tmp_path) as world, world.make() as platform:
        world.use_up_quota()
        handle = await accepted(world, platform, "a")
        wait = await waiting(world, platform, handle, lambda wait: wait.code is WaitCode.QUOTA)
        assert "exceeded quota: team" in wait.sentence


@pytest.mark.parametrize("kind", ["tfjobs", "pytorchjobs"])
async def test_suspended_job_states_that_it_waits(tmp_path: Path, kind: str) -> None:
    async with WORLDS[kind](tmp_path) as world, world.make() as platform:
        world.control.pause(CONTROLLERS[kind])
        handle = await accepted(world, platform, "a")
        world.change(handle, lambda job: job["spec"]["runPolicy"].update(suspend=True))
        world.control.resume(CONTROLLERS[kind])
        wait = await waiting(world, platform, handle, lambda wait: "is suspended" in wait.sentence)
        assert wait.code is WaitCode.SUBMITTED


async def test_pod_creation_failure_is_not_a_user_failure(tmp_path: Path) -> None:
    async with WORLDS["adaptdljobs"](tmp_path) as world, world.make() as platform:
        world.use_up_quota()
        handle = await accepted(world, platform, "a")
        report = await seen(world, platform, handle, JobState.FAILED)
        assert (report.cause, report.native_reason) == (Reason.SUBMIT_REJECTED, "PodCreationError")
        assert "exceeded quota: team" in report.message and "HTTP" not in report.message


@every_kind
async def test_cancelled_job_with_a_finalizer_ends(tmp_path: Path, kind: str) -> None:
    """A finalizer of others keeps the deleted object, and its operator leaves the pods alone."""
    async with WORLDS[kind](tmp_path) as world, world.make() as platform:
        handle = await running(world, platform, "a")
        world.change(handle, lambda job: job["metadata"].update(finalizers=["example.com/audit"]))
        await platform.cancel([handle], 5.0)
        await seen(world, platform, handle, JobState.CANCELLED)
        await world.gone_there(handle)


@pytest.mark.parametrize(
    ("kind", "reason"), [("tfjobs", "FailedCreatePod"), ("pytorchjobs", "FailedCreatePod"), ("jobs", "FailedCreate")]
)
async def test_pods_denied_by_a_policy_reject_the_job(
    tmp_path: Path, kind: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator repeats the call for good."""
    monkeypatch.setattr(job_memory, "_DENIED_S", 0.5)
    async with WORLDS[kind](tmp_path) as world, world.make() as platform:
        world.control.deny("pods", "policy.example.com", "no latest tags")
        handle = await accepted(world, platform, "a")
        await waiting(world, platform, handle, lambda wait: "no latest tags" in wait.sentence)
        report = await seen(world, platform, handle, JobState.FAILED)
        assert (report.cause, report.native_reason) == (Reason.SUBMIT_REJECTED, reason)
        assert 'webhook "policy.example.com" denied the request: no latest tags' in report.message
