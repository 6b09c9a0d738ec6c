"""`scripted` as a batch system keeps the part of the platform contract that is about what a service decides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from batch_world import BatchWorld

from nni_manager.platform_kit.testing.queue_contract import QueueContract

pytestmark = pytest.mark.contract


class TestBatch(QueueContract):
    @pytest_asyncio.fixture
    async def world(self, tmp_path: Path) -> AsyncIterator[BatchWorld]:
        async with BatchWorld(tmp_path) as world:
            yield world
