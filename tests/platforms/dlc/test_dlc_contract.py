"""`dlc` keeps the platform contract, with its official SDK and trial runners."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dlc_world import NAS, DlcWorld

from nni_manager.domain.job import JobState
from nni_manager.platform_kit.testing import PlatformContract, World
from nni_manager.platform_kit.testing.observing import accepted, seen
from nni_manager.platforms.dlc import account, platform
from nni_manager.shared_storage import mounted_storage
from tests.fakes.dlc.containers import Source

pytestmark = pytest.mark.contract
#: Reads a second, and how many may come at once first.
_SLOW = (8.0, 3)


@pytest.fixture(autouse=True)
def nobody_waits_for_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the paces are worth is tested by itself."""
    monkeypatch.setattr(platform, "_READ_PATIENCE_S", 1.0)
    monkeypatch.setattr(account, "READS_A_SECOND", 1000.0)
    monkeypatch.setattr(account, "WRITES_A_SECOND", 1000.0)


class TestDlc(PlatformContract):
    def make_world(self, directory: Path) -> DlcWorld:
        return DlcWorld(directory)

    async def test_many_handles_take_a_bounded_number_of_calls(self, world: World) -> None:
        """5: what matters are the calls, and a hundred processes would take half a minute."""
        assert isinstance(world, DlcWorld)
        world.pretend()
        await super().test_many_handles_take_a_bounded_number_of_calls(world)

    async def test_experiments_on_a_connection_share_its_pace(self, world: World) -> None:
        """24: at a pace that the SDK exceeds without a limit."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(account, "READS_A_SECOND", _SLOW[0])
            patch.setattr(account, "READ_BURST", _SLOW[1])
            await super().test_experiments_on_a_connection_share_its_pace(world)

    async def test_another_storage_in_the_container_is_named(
        self, world: DlcWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mounted_storage, "_PATIENCE_S", 0)
        (tmp_path / "unrelated").mkdir()
        world.service.containers.sources[NAS] = Source(folder=tmp_path / "unrelated", mount="/root/data/")  # type: ignore[index]
        async with world.make() as platform:
            handle = await accepted(world, platform, "a")
            world.service.release(json.loads(handle.data)["id"])
            report = await seen(world, platform, handle, JobState.FAILED)
        assert "nasDataSourceId" in report.message and str(world.here) in report.message
