"""A machine that refuses a login for a while is used again, with what its jobs reported meanwhile."""

from __future__ import annotations

import asyncssh
import pytest

from nni_manager.domain.job import JobHandle, JobState
from nni_manager.machines.ssh.machine import Machine
from nni_manager.platform_kit.testing.observing import accepted, finish, run, running, seen
from nni_manager.platforms.remote import experiment_machine as site_module
from nni_manager.platforms.remote.platform import RemotePlatform
from tests.platforms.remote.remote_world import RemoteWorld
from tests.platforms.remote.ssh_machines import InProcessMachine
from tests.waiting import until_async

pytestmark = pytest.mark.contract


async def refused_after_an_outage(world: RemoteWorld, platform: RemotePlatform) -> JobHandle:
    """A job that ended well while its machine refused the login."""
    handle = await running(world, platform, "a")
    await world.machine.stop()
    assert isinstance(world.machine, InProcessMachine)
    world.machine.is_locked = True
    await world.machine.start()
    await until_async(lambda: all(site.refusal is not None for site in platform._machines))
    await world.end(handle, 0)
    return handle


def unlock(world: RemoteWorld) -> None:
    assert isinstance(world.machine, InProcessMachine)
    world.machine.is_locked = False


async def test_refused_login_is_retried_slowly(world: RemoteWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_module, "_REFUSED_WAITS_S", (0.2,))
    monkeypatch.setattr("nni_manager.machines.ssh.machine._REFUSAL_S", 0.1)
    async with world.make() as platform:
        handle = await refused_after_an_outage(world, platform)
        unlock(world)
        await seen(world, platform, handle, JobState.SUCCEEDED)


async def test_internal_error_delays_a_machine_briefly(world: RemoteWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was out of use until the daemon's restart, without a word in the log."""
    check, faults = Machine.check, [KeyError("a fault")]

    async def faulty(machine: Machine, credential: str) -> None:
        if faults:
            raise faults.pop()
        await check(machine, credential)

    monkeypatch.setattr(Machine, "check", faulty)
    async with world.make() as platform:
        await until_async(lambda: all(site.is_up for site in platform._machines))
        assert await accepted(world, platform, "a")


async def test_refused_login_is_retried_at_once_on_request(world: RemoteWorld) -> None:
    async with world.make() as platform:
        handle = await refused_after_an_outage(world, platform)
        unlock(world)
        platform.try_again()
        await seen(world, platform, handle, JobState.SUCCEEDED)
        assert await accepted(world, platform, "b")


async def test_refused_login_is_shared_with_other_experiments(world: RemoteWorld) -> None:
    recorder = world.recorder.other("neighbour")
    async with world.make() as platform:
        handle = await refused_after_an_outage(world, platform)
        unlock(world)
        for site in platform._machines:
            assert site._lease is not None
            site._lease.connection.forget_refusals()  # ten seconds later
        async with world.make_of(recorder) as second:
            other = await run(world, second, world.job_of(recorder, "a"), recorder)
            await seen(world, platform, handle, JobState.SUCCEEDED)
            await finish(world, second, [other], recorder)


async def test_refused_login_is_tried_once_for_all_experiments(world: RemoteWorld) -> None:
    recorder = world.recorder.other("neighbour")
    async with world.make() as platform, world.make_of(recorder) as second:
        await run(world, second, world.job_of(recorder, "a"), recorder)
        assert isinstance(world.machine, InProcessMachine)
        await refused_after_an_outage(world, platform)
        await until_async(lambda: all(site.refusal is not None for site in second._machines))
        assert world.machine.refused_logins == 1


async def test_a_host_key_that_was_put_back(world: RemoteWorld) -> None:
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        ours = world.machine.host_key
        await world.machine.stop()
        world.machine.host_key = asyncssh.generate_private_key("ssh-ed25519")
        await world.machine.start()
        await until_async(lambda: all(site.refusal is not None for site in platform._machines))
        await world.end(handle, 0)
        await world.machine.stop()
        world.machine.host_key = ours
        await world.machine.start()
        platform.try_again()
        await seen(world, platform, handle, JobState.SUCCEEDED)
