"""`aml` keeps the platform contract, with trial runners and the workspace's storage between us."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.platform_kit.testing import PlatformContract, World
from nni_manager.platforms.aml import account, mirror, platform
from tests.platforms.aml.aml_world import PACE, AmlWorld

pytestmark = pytest.mark.contract


@pytest.fixture(autouse=True)
def nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Azure's limits are worth is tested by itself."""
    monkeypatch.setattr(account, "PACES", {"read": PACE, "write": (1000.0, 1000)})
    monkeypatch.setattr(platform, "_READ_PATIENCE_S", 1.0)
    monkeypatch.setattr(mirror, "SHORTEST_WAIT_S", 0.1)
    monkeypatch.setattr(mirror, "LONGEST_WAIT_S", 0.5)


class TestAml(PlatformContract):
    def make_world(self, directory: Path) -> AmlWorld:
        return AmlWorld(directory)

    async def test_many_handles_take_a_bounded_number_of_calls(self, world: World) -> None:
        """5: what matters are the calls, and a hundred processes would take half a minute."""
        assert isinstance(world, AmlWorld)
        world.pretend()
        await super().test_many_handles_take_a_bounded_number_of_calls(world)
