"""DLWorkspace keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.platform_kit.testing import PlatformContract, World
from tests.fakes.process import FakeProcess
from tests.platforms.dlts.dlts_world import DltsWorld

pytestmark = pytest.mark.contract


class TestDltsContract(PlatformContract):
    @pytest.fixture(autouse=True)
    def _fake(self, fake: FakeProcess) -> None:
        self.fake = fake

    def make_world(self, directory: Path) -> World:
        return DltsWorld(directory, self.fake)
