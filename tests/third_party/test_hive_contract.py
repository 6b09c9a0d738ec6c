"""A third party's adapter keeps the platform contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.platform_kit.testing import PlatformContract
from tests.third_party.hive_world import HiveWorld

pytestmark = [pytest.mark.contract, pytest.mark.xdist_group("hive"), pytest.mark.usefixtures("found_here")]


class TestHive(PlatformContract):
    def make_world(self, directory: Path) -> HiveWorld:
        return HiveWorld(directory)
