"""Submissions that broke off before it was known whether the machine's keeper had accepted the job."""

from __future__ import annotations

import dataclasses
import os
import signal

import pytest

from nni_manager.domain.job import JobHandle, JobState
from nni_manager.machines.ssh.address import Address
from nni_manager.platform_kit.testing.observing import finish, insist, running, seen
from tests.platforms.remote.remote_world import RemoteWorld
from trial_runner import protocol

pytestmark = pytest.mark.contract


async def test_job_unknown_to_its_keeper_was_never_taken(world: RemoteWorld) -> None:
    async with world.make() as platform:
        first = await running(world, platform, "a")
        spec = dataclasses.replace(world.job("b"), is_repeat=True)
        await platform._locations.put(spec.name, Address.of(world.machine.entry()).key)
        await world.machine.stop()
        unsure = await platform.submit(spec)
        assert isinstance(unsure, JobHandle)
        await world.machine.start()
        report = await seen(world, platform, unsure, JobState.LOST)
        assert report.was_never_taken
        again = await insist(world, lambda: platform.submit(spec))
        assert isinstance(again, JobHandle)
        await seen(world, platform, again, JobState.RUNNING)
        assert await world.count(spec.name) == 1
        await finish(world, platform, [first, again])


async def test_job_forgotten_by_its_keeper_was_taken(world: RemoteWorld) -> None:
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        await world.vanish(handle)
        report = await seen(world, platform, handle, JobState.LOST)
        assert not report.was_never_taken


async def test_job_prepared_by_a_dead_keeper_was_never_taken(world: RemoteWorld) -> None:
    """Its keeper and the daemon died at one time: the job was never seen there."""
    async with world.make() as platform:
        first = await running(world, platform, "a")
        [tree] = world.folder(world.machine).glob(f"*/*{protocol.CODE_TREE}")
        os.mkfifo(tree / "held")  # until there is a writer, copying waits
        handle = await insist(world, lambda: platform.submit(world.job("b")))
        assert isinstance(handle, JobHandle)
        await seen(world, platform, handle, JobState.PENDING)
        await world.start_outage()
        await world.kill_keeper(signal.SIGKILL)
    (tree / "held").unlink()
    await world.restart()
    await world.end_outage()
    async with world.make() as platform:
        assert (await seen(world, platform, handle, JobState.LOST)).was_never_taken
        again = await insist(world, lambda: platform.submit(world.job("b")))
        assert isinstance(again, JobHandle)
        await seen(world, platform, again, JobState.RUNNING)
        await finish(world, platform, [first, again])
