"""`dlc` keeps the platform contract, with its official SDK and trial runners."""

from __future__ import annotations

from pathlib import Path

import pytest
from dlc_world import DlcWorld

from nni_manager.platform_kit.testing import PlatformContract, World
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

    async def test_many_handles_take_a_bounded_number_of_calls(self, world: World) -> None:
        """5: what matters are the calls, and a hundred processes would take half a minute."""
        assert isinstance(world, DlcWorld)
        world.service.faults.pretend_s = 3600.0
        await super().test_many_handles_take_a_bounded_number_of_calls(world)
