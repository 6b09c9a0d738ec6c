"""SSH connections of a machine: one, whatever happens to its keeper."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.platforms.remote.remote_world import RemoteWorld
from tests.platforms.remote.ssh_machines import InProcessMachine

pytestmark = pytest.mark.contract


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (asyncssh sends no events about its connections)
            await asyncio.sleep(0.01)


async def test_the_connection_ends_with_the_keeper_behind_it(tmp_path: Path) -> None:
    machine = InProcessMachine(tmp_path / "machine")
    async with RemoteWorld(tmp_path, machine) as world, world.make() as platform:
        (site,) = platform._machines
        for kills in range(1, 4):
            await until(lambda: site.is_up)
            await world.kill_keeper(signal.SIGKILL)
            await until(lambda logins=1 + kills: machine.logins == logins)
        await until(lambda: site.is_up)
        await until(lambda: len(machine._connections) == 1)
