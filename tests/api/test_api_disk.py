"""What experiments take on disk, and the warning of a disk that is nearly full."""

from __future__ import annotations

import httpx
import pytest

from nni_manager.scheduler.disk import Disk
from nni_manager.scheduler.disk_watch import CODE, DiskWatch
from tests.api.world import World

pytestmark = pytest.mark.unit

EXPERIMENTS = "/api/v1/experiments"
#: More than any disk has.
_EVERYTHING_MIB = 2**40


async def test_use_is_told_by_part(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    (folder.trials / "big").write_bytes(b"x" * 300_000)
    found = (await api.get(f"{EXPERIMENTS}/seeded/disk")).json()
    parts = ("database", "trials", "checkpoints", "code", "logs", "other")
    assert found["trials"] >= 300_000 and found["database"] > 0
    assert found["total"] == sum(found[part] for part in parts)


async def test_room_is_told(api: httpx.AsyncClient, world: World) -> None:
    found = (await api.get("/api/v1/disk")).json()
    assert found["folder"] == str(world.data) and 0 < found["free"] <= found["total"]
    assert found["least"] == 2**30


async def test_disk_that_is_nearly_full_is_told(api: httpx.AsyncClient, world: World) -> None:
    world.service.disk = Disk(world.data, _EVERYTHING_MIB)
    assert "GiB left" in (await api.get("/api/v1/disk")).json()["warning"]
    world.service.disk = Disk(world.data, 0)
    assert (await api.get("/api/v1/disk")).json()["warning"] == ""


async def test_experiments_are_warned_until_there_is_room(
    api: httpx.AsyncClient, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    id_ = (await api.post(EXPERIMENTS, json=world.config())).json()["id"]
    warnings = world.supervisor.shared.warnings
    world.service.disk = Disk(world.data, _EVERYTHING_MIB)
    watch = DiskWatch(world.service, warnings)
    await watch.look()
    await watch.look()
    (told,) = (await api.get(f"{EXPERIMENTS}/{id_}")).json()["warnings"]
    assert told["code"] == CODE and "make room" in told["message"]
    assert len([one for one in caplog.records if "GiB left" in one.message]) == 1
    world.service.disk = Disk(world.data, 0)
    await DiskWatch(world.service, warnings).look()
    assert (await api.get(f"{EXPERIMENTS}/{id_}")).json()["warnings"] == []
