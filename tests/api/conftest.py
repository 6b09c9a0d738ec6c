"""A manager, and a client of its API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import httpx
import pytest

from tests.api.services import act
from tests.api.world import World, make_world
from tests.scheduler.fake_endpoints import FakeEndpoints


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with make_world(tmp_path, monkeypatch) as world:
        yield world


@pytest.fixture
async def api(world: World) -> AsyncIterator[httpx.AsyncClient]:
    async with world.calling() as client:
        yield client


@pytest.fixture
def acted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    act(monkeypatch)


@pytest.fixture
def listener(world: World) -> FakeEndpoints:
    return cast(FakeEndpoints, world.supervisor.shared.endpoints)
