"""One fake for all tests of a module; each begins with a cluster that knows nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.fakes.process import FakeProcess, running
from tests.platforms.openpai.openpai_world import OpenpaiWorld


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeProcess]:
    with running("openpai", tmp_path_factory.mktemp("openpai")) as fake:
        yield fake


@pytest_asyncio.fixture
async def world(tmp_path: Path, fake: FakeProcess) -> AsyncIterator[OpenpaiWorld]:
    async with OpenpaiWorld(tmp_path, fake) as world:
        yield world
