"""Jobs that are deleted in the foreground, and pods whose node is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.domain.job import JobHandle, JobState
from nni_manager.kubernetes.jobs import job_memory
from nni_manager.platform_kit.testing.observing import running, seen
from tests.platforms.kubernetes.test_batch_job_contract import TestBatchJob as BatchJob
from tests.platforms.kubernetes_world import KubernetesWorld
from tests.platforms.test_kubernetes_ends import WORLDS, every_kind

pytestmark = pytest.mark.contract

_AGES_AGO = "2026-01-01T00:00:00Z"


@every_kind
async def test_job_deleted_in_the_foreground_is_cancelled(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job stays until its pods are gone, which takes long if a node is slow to unmount volumes."""
    monkeypatch.setattr(job_memory, "_NOTICED_S", 0.0)
    async with WORLDS[kind](tmp_path) as world, world.make() as platform:
        handle = await running(world, platform, "a")
        await world.cancel_in_portal(handle, "Foreground")
        report = await seen(world, platform, handle, JobState.CANCELLED)
        assert report.message.endswith("was deleted in the cluster")


async def test_job_on_an_isolated_node_is_unreachable(tmp_path: Path) -> None:
    async with BatchJob().make_world(tmp_path) as world:
        async with world.make() as platform:
            handle = await running(world, platform, "a")
            await isolated(world, handle)
            assert (await platform.observe([handle]))[handle].state is JobState.RUNNING
            let_time_pass(world, handle)
            report = await seen(world, platform, handle, JobState.UNKNOWN)
            assert report.unreachable.startswith("node node-0 does not answer, and pod nni-exp-")
        await world.restart()
        async with world.make() as platform:
            report = (await platform.observe([handle]))[handle]
            assert report.state is JobState.UNKNOWN, "at once, or its time would begin again"
            world.control.find_node("node-0")
            report = await seen(world, platform, handle, JobState.PREEMPTED)
            assert report.native_reason == "DeletionByTaintManager"


async def test_cancelled_job_on_an_isolated_node_stays_unreachable(tmp_path: Path) -> None:
    """So that the manager says that it may still run."""
    async with BatchJob().make_world(tmp_path) as world, world.make() as platform:
        handle = await running(world, platform, "a")
        await isolated(world, handle)
        let_time_pass(world, handle)
        await seen(world, platform, handle, JobState.UNKNOWN)
        await platform.cancel([handle], 1)
        await world._until(lambda: not world._objects(world.operated.resource))
        report = await seen(world, platform, handle, JobState.UNKNOWN)
        assert report.unreachable != ""
        world.control.lose_node("node-0")
        await seen(world, platform, handle, JobState.CANCELLED)


@pytest.mark.parametrize("policy", ["Foreground", "Background"])
async def test_deleted_job_on_an_isolated_node_is_cancelled(tmp_path: Path, policy: str) -> None:
    async with BatchJob().make_world(tmp_path) as world, world.make() as platform:
        handle = await running(world, platform, "a")
        await isolated(world, handle)
        await world.cancel_in_portal(handle, policy)
        let_time_pass(world, handle)
        report = await seen(world, platform, handle, JobState.CANCELLED)
        assert report.message.endswith("was deleted in the cluster")


@pytest.mark.parametrize("is_connected", [True, False])
async def test_job_that_a_user_suspends_is_preempted(tmp_path: Path, is_connected: bool) -> None:
    async with BatchJob().make_world(tmp_path) as world:
        async with world.make() as platform:
            handle = await running(world, platform, "a")
            name = world.object_name(handle)
            if is_connected:
                world.control.suspend("default", name)
                await seen(world, platform, handle, JobState.PREEMPTED)
                return
        world.control.suspend("default", name)
        await world.gone_there(handle)
        async with world.make() as platform:
            report = await seen(world, platform, handle, JobState.PREEMPTED)
    assert (report.is_uncounted, report.message) == (False, f"Job {name} was suspended")


async def isolated(world: KubernetesWorld, handle: JobHandle) -> None:
    world.control.isolate_node("node-0")
    await world._until(lambda: bool(world.job_object(handle)["status"].get("terminating")))


def let_time_pass(world: KubernetesWorld, handle: JobHandle) -> None:
    """Makes the grace period of a job's pods end long ago."""
    for pod in world.pods(handle):
        changed = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": _AGES_AGO}}
        world.server.cluster.store.put("pods", ("default", pod["metadata"]["name"]), changed)
