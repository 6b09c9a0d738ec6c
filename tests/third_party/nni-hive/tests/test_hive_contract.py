"""The adapter to a Hive keeps the platform contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hive import running_hive
from hive_world import HiveWorld

from nni_manager.platform_kit.testing import PlatformContract


@pytest.fixture(scope="module", autouse=True)
def hive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with running_hive(tmp_path_factory.mktemp("hive")) as HiveWorld.hive:
        yield


class TestHive(PlatformContract):
    def make_world(self, directory: Path) -> HiveWorld:
        return HiveWorld(directory)
