"""OpenPAI keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.platform_kit.testing import PlatformContract, World
from tests.fakes.process import FakeProcess
from tests.platforms.openpai.openpai_world import OpenpaiWorld

pytestmark = pytest.mark.contract


class TestOpenpaiContract(PlatformContract):
    @pytest.fixture(autouse=True)
    def _fake(self, fake: FakeProcess) -> None:
        self.fake = fake

    def make_world(self, directory: Path) -> World:
        return OpenpaiWorld(directory, self.fake)
