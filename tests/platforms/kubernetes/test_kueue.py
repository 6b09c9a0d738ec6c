"""Jobs in a queue of Kueue: waits with the queue's sentence, preemption, jobs that are never admitted, preflight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.service import WaitCode
from nni_manager.platform_kit.contract import Platform, Severity
from nni_manager.platform_kit.testing.observing import accepted, seen, seen_as
from tests.platforms.kubeflow.test_kubeflow_contract import operated
from tests.platforms.kubernetes.test_batch_job_contract import OPERATED
from tests.platforms.kubernetes_world import KubernetesWorld

pytestmark = pytest.mark.contract

_NO_QUOTA = (
    "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed"
)
_TAKEN = "Preempted to accommodate a workload (UID: 1) due to prioritization in the ClusterQueue"


_OPERATED = {
    "Job": OPERATED,
    "TFJob": operated("tf-operator", "worker", "tfjobs"),
    "PyTorchJob": operated("pytorch-operator", "master", "pytorchjobs"),
}


def world_in(folder: Path, version: str = "v1beta2", kind: str = "Job") -> KubernetesWorld:
    return KubernetesWorld(folder, _OPERATED[kind], kueue=version)


async def queued(world: KubernetesWorld, platform: Platform[Any]) -> tuple[JobHandle, str]:
    """A job with a Workload, and its object's name."""
    handle = await accepted(world, platform, "a")
    name = world.object_name(handle)
    await world._until(lambda: bool(world._objects("workloads.kueue.x-k8s.io")))
    return handle, name


async def observed(
    world: KubernetesWorld, platform: Platform[Any], handle: JobHandle, holds: Callable[[Observation], bool]
) -> Observation:
    """The first observation for which this holds."""
    return await seen_as(world, platform, handle, holds, "observed as expected")


async def admitted(world: KubernetesWorld, platform: Platform[Any], kind: str) -> tuple[JobHandle, str]:
    """A running job, and its object's name."""
    handle, name = await queued(world, platform)
    world.control.kueue_admit("default", name, kind)
    await world.begin(handle)
    await seen(world, platform, handle, JobState.RUNNING)
    return handle, name


@pytest.mark.parametrize(
    ("version", "kind"), [("v1beta1", "Job"), ("v1beta2", "Job"), ("v1beta2", "TFJob"), ("v1beta2", "PyTorchJob")]
)
async def test_queued_job_waits_with_the_sentence_of_its_queue(tmp_path: Path, version: str, kind: str) -> None:
    async with world_in(tmp_path, version, kind) as world, world.make(queueName="team") as platform:
        handle, name = await queued(world, platform)
        first = await observed(world, platform, handle, lambda one: one.wait is not None and one.wait.details != {})
        assert first.wait is not None and first.wait.sentence == "Kueue's queue team has not admitted the job yet"
        world.control.kueue_hold("default", name, "WaitingForQuota", _NO_QUOTA, kind)
        found = await observed(world, platform, handle, lambda one: one.wait != first.wait)
        assert found.wait is not None and found.state is JobState.PENDING
        assert (found.wait.code, found.wait.sentence) == (WaitCode.QUOTA, f"Kueue's queue team: {_NO_QUOTA}")
        assert found.wait.details == {"queue": "team", "reason": "WaitingForQuota"}
        world.control.kueue_admit("default", name, kind)
        await world.begin(handle)
        await seen(world, platform, handle, JobState.RUNNING)
        await world.end(handle, 0)
        await seen(world, platform, handle, JobState.SUCCEEDED)


@pytest.mark.parametrize("kind", _OPERATED)
async def test_job_preempted_by_its_queue_is_not_counted(tmp_path: Path, kind: str) -> None:
    async with world_in(tmp_path, kind=kind) as world, world.make(queueName="team") as platform:
        handle, name = await admitted(world, platform, kind)
        world.control.kueue_evict("default", name, "Preempted", _TAKEN, kind)
        found = await seen(world, platform, handle, JobState.PREEMPTED)
        assert found.is_uncounted and found.native_reason == "Suspended"
        assert found.message == f"{kind} {name} was suspended by its queue: {_TAKEN}"
        assert not any(pod["status"].get("phase") == "Running" for pod in world.pods(handle))
        await platform.forget([handle])
        await world._until(lambda: world._objects(_OPERATED[kind].resource) == [])


@pytest.mark.parametrize("reason", ["Preempted", "ClusterQueueStopped"])
@pytest.mark.parametrize("kind", _OPERATED)
async def test_preemption_while_disconnected_is_seen(tmp_path: Path, kind: str, reason: str) -> None:
    async with world_in(tmp_path, kind=kind) as world:
        async with world.make(queueName="team") as platform:
            handle, name = await admitted(world, platform, kind)
        world.control.kueue_evict("default", name, reason, _TAKEN, kind)
        await world.gone_there(handle)
        await world.restart()
        async with world.make(queueName="team") as platform:
            found = await seen(world, platform, handle, JobState.PREEMPTED)
        assert found.is_uncounted


@pytest.mark.parametrize(
    ("is_deactivated", "reason", "sentence"),
    [
        (False, "ExceedsMaxQuota", f"Kueue never admits the job: {_NO_QUOTA}"),
        (True, "Deactivated", "Kueue deactivated the job: The workload is deactivated"),
    ],
)
async def test_job_that_is_never_admitted_waits_without_hope(
    tmp_path: Path, is_deactivated: bool, reason: str, sentence: str
) -> None:
    async with world_in(tmp_path) as world, world.make(queueName="team") as platform:
        handle, name = await queued(world, platform)
        if is_deactivated:
            world.control.kueue_deactivate("default", name)
            is_evicted = "Evicted"
            await world._until(lambda: is_evicted in str(world._objects("workloads.kueue.x-k8s.io")))
        else:
            world.control.kueue_hold("default", name, reason, _NO_QUOTA)
        found = await observed(world, platform, handle, lambda one: one.wait is not None and one.wait.is_hopeless)
        assert found.state is JobState.PENDING and found.wait is not None
        assert (found.wait.code, found.wait.sentence) == (WaitCode.QUOTA, sentence)
        assert found.wait.details == {"queue": "team", "reason": reason}
        if not is_deactivated:
            world.control.kueue_hold("default", name, "WaitingForQuota", _NO_QUOTA)
            await observed(world, platform, handle, lambda one: one.wait is not None and not one.wait.is_hopeless)


async def test_missing_queue_is_found_before_the_first_job(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world:
        found = await world.make(queueName="team").preflight()
        [told] = [one for one in found if one.severity is Severity.WRONG]
        assert (told.subject, told.sentence) == (
            "queueName",
            "namespace default has no LocalQueue team: jobs would wait forever",
        )
        kind = world.server.cluster.kinds.by_key("localqueues.kueue.x-k8s.io")
        assert kind is not None
        body = {"apiVersion": kind.api_version, "kind": "LocalQueue", "metadata": {"name": "team"}, "spec": {}}
        world.server.cluster.verbs.create(kind, "default", body)
        assert [one for one in await world.make(queueName="team").preflight() if one.subject == "queueName"] == []


async def test_queue_without_kueue_is_a_warning(tmp_path: Path) -> None:
    async with world_in(tmp_path, "") as world:
        found = await world.make(queueName="team").preflight()
        assert [(one.subject, one.severity) for one in found if one.subject == "queueName"] == [
            ("queueName", Severity.WARNING)
        ]
