"""A `pythonPath` that was wrong is corrected while an experiment uses the machine."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest
import pytest_asyncio

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.machines.ssh import machine as machine_module
from nni_manager.machines.ssh.address import Entry
from nni_manager.machines.ssh.faults import Fault, MachineFault
from nni_manager.machines.ssh.machine import Machine
from nni_manager.platform_kit.connections import Connections
from nni_manager.platforms.remote.platform import RemotePlatform
from tests.platforms.remote.remote_world import RemoteWorld
from tests.platforms.remote.ssh_machines import InProcessMachine
from tests.waiting import until_async

pytestmark = pytest.mark.contract

GOOD = str(Path(sys.executable).parent)


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[RemoteWorld]:
    """Its machine has no Python on its `PATH`."""
    machine = InProcessMachine(tmp_path / "machine")
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "cat"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or "")
    machine.environment["PATH"] = str(tmp_path / "bin")
    async with RemoteWorld(tmp_path / "world", machine) as world:
        yield world


def is_up(platform: RemotePlatform) -> bool:
    return all(site.is_up for site in platform._machines)


def has_no_python(platform: RemotePlatform) -> bool:
    return all("it has no Python" in site.why for site in platform._machines)


async def test_update_of_a_running_experiment_is_tried_at_once(world: RemoteWorld) -> None:
    async with world.make() as platform:
        await until_async(lambda: has_no_python(platform))
        platform.renew(world.config([world.machine], pythonPath=GOOD))
        await until_async(lambda: is_up(platform))


async def test_next_experiment_brings_its_own(world: RemoteWorld) -> None:
    async with world.make(pythonPath="/nowhere") as platform:
        await until_async(lambda: has_no_python(platform))
        async with world.make_of(world.recorder.other("neighbour"), pythonPath=GOOD) as second:
            await until_async(lambda: is_up(platform) and is_up(second))


async def test_earlier_python_path_is_retried_after_wrong_one(
    world: RemoteWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart of the daemon, which opens experiments in any order."""
    monkeypatch.setattr(machine_module, "_WRONG_S", 0.1)
    async with world.make(pythonPath=GOOD) as platform:
        await until_async(lambda: is_up(platform))
        async with world.make_of(world.recorder.other("neighbour"), pythonPath="/nowhere") as second:
            await until_async(lambda: is_up(second))
            await world.kill_keeper(signal.SIGKILL)
            await until_async(lambda: not is_up(platform))
            await until_async(lambda: is_up(platform) and is_up(second))


async def test_cleaning_brings_its_own(world: RemoteWorld) -> None:
    async with world.make(pythonPath="/nowhere") as platform:
        await until_async(lambda: has_no_python(platform))
        with suppress(PlatformUnavailable):  # it does not wait for the next try
            await world.make_of(world.recorder.other("neighbour"), pythonPath=GOOD).clean(["neighbour-a-1"])
        await until_async(lambda: is_up(platform))


async def test_path_named_during_a_try_is_the_next_one_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(Entry.of({"host": "bench", "user": "ann"}).address, Connections())
    machine.look_for_python("/wrong")
    tried = []

    async def attach(_: object, path: str) -> NoReturn:
        tried.append(path)
        machine.look_for_python("/right")
        raise MachineFault(Fault(subject="python", sentence="it has no Python", is_wrong=True))

    monkeypatch.setattr(machine, "_attach", attach)
    async with asyncio.timeout(10):
        for _ in range(2):
            with pytest.raises(PlatformUnavailable):
                await machine._reach(asyncio.Protocol)
    assert tried == ["/wrong", "/right"]
