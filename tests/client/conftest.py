"""A manager behind a real socket, and its client."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nni_manager.api.application import create_application
from nni_manager.client.manager_client import ManagerClient
from tests.api.listeners import socket_listener
from tests.api.world import World, make_world


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with make_world(tmp_path, monkeypatch) as world:
        yield world


@pytest.fixture
async def client(world: World) -> AsyncIterator[ManagerClient]:
    """Blocks: call it in a thread. The socket's path must be short."""
    with tempfile.TemporaryDirectory() as folder:
        async with socket_listener(create_application(world.context), Path(folder) / "socket") as address:
            yield ManagerClient(address)
