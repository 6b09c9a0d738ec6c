"""`dlc` keeps the platform contract, with its official SDK and trial runners."""

from __future__ import annotations

from pathlib import Path

import pytest
from dlc_world import DlcWorld

from nni_manager.platform_kit.testing import PlatformContract
from nni_manager.platforms.dlc import account

pytestmark = pytest.mark.contract


@pytest.fixture(autouse=True)
def nobody_waits_for_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the paces are worth is tested by itself."""
    monkeypatch.setattr(account, "READS_A_SECOND", 1000.0)
    monkeypatch.setattr(account, "WRITES_A_SECOND", 1000.0)


class TestDlc(PlatformContract):
    def make_world(self, directory: Path) -> DlcWorld:
        return DlcWorld(directory)
