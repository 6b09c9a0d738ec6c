"""SSH connections of a machine: one, whatever happens to its keeper."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.platforms.remote.remote_world import RemoteWorld
from tests.platforms.remote.ssh_machines import InProcessMachine
from tests.waiting import until_async

pytestmark = pytest.mark.contract


async def test_the_connection_ends_with_the_keeper_behind_it(tmp_path: Path) -> None:
    machine = InProcessMachine(tmp_path / "machine")
    async with RemoteWorld(tmp_path, machine) as world, world.make() as platform:
        (site,) = platform._machines
        for kills in range(1, 4):
            await until_async(lambda: site.is_up)
            await world.kill_keeper(signal.SIGKILL)
            await until_async(lambda logins=1 + kills: machine.logins == logins)
        await until_async(lambda: site.is_up)
        await until_async(lambda: len(machine._connections) == 1)
