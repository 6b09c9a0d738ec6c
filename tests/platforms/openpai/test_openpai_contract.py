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

    async def test_many_handles_take_a_bounded_number_of_calls(self, world: World) -> None:
        """5, with jobs that the cluster only says it runs: a hundred processes would prove nothing more."""
        assert isinstance(world, OpenpaiWorld)
        world.pretend()
        await super().test_many_handles_take_a_bounded_number_of_calls(world)

    def make_world(self, directory: Path) -> World:
        return OpenpaiWorld(directory, self.fake)
