"""A machine with an SSH server in this process, alone or in a world."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.platforms.remote.remote_world import RemoteWorld
from tests.platforms.remote.ssh_machines import InProcessMachine, home_of_manager


@pytest_asyncio.fixture
async def machine(tmp_path: Path) -> AsyncIterator[InProcessMachine]:
    """A running machine; the user's own SSH configuration is hidden meanwhile."""
    machine = InProcessMachine(tmp_path / "machine")
    with home_of_manager(tmp_path / "manager"):
        await machine.start()
        yield machine
        await machine.stop()


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[RemoteWorld]:
    async with RemoteWorld(tmp_path / "world", InProcessMachine(tmp_path / "machine")) as world:
        yield world
