"""A third party's adapter keeps the platform contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nni_manager.platform_kit.testing import PlatformContract
from tests.third_party.hive import running_hive
from tests.third_party.hive_world import HiveWorld

pytestmark = [pytest.mark.contract, pytest.mark.group("hive"), pytest.mark.usefixtures("found_here")]


@pytest.fixture(scope="module", autouse=True)
def hive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with running_hive(tmp_path_factory.mktemp("hive")) as HiveWorld.hive:
        yield


@pytest.mark.thorough
class TestHive(PlatformContract):
    def make_world(self, directory: Path) -> HiveWorld:
        return HiveWorld(directory)
