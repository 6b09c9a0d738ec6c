"""What experiments take on disk, and the warning of a disk that is nearly full."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import httpx
import pytest

from nni_manager.domain.experiment import ExperimentWarning
from nni_manager.scheduler import disk as module
from nni_manager.scheduler.disk import Disk, DiskUse, measure
from nni_manager.scheduler.disk_watch import CODE, DiskWatch
from nni_manager.store.folder import Folder
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


async def test_free_space_is_reported(api: httpx.AsyncClient, world: World) -> None:
    found = (await api.get("/api/v1/disk")).json()
    assert found["folder"] == str(world.data) and 0 < found["free"] <= found["total"]
    assert found["least"] == 2**30


async def test_nearly_full_disk_is_reported(api: httpx.AsyncClient, world: World) -> None:
    world.commands.disk = Disk(world.data, _EVERYTHING_MIB)
    assert "GiB left" in (await api.get("/api/v1/disk")).json()["warning"]
    world.commands.disk = Disk(world.data, 0)
    assert (await api.get("/api/v1/disk")).json()["warning"] == ""


async def test_experiments_are_warned_until_there_is_room(
    api: httpx.AsyncClient, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    id_ = (await api.post(EXPERIMENTS, json=world.config())).json()["id"]
    warnings = world.supervisor.shared.warnings
    world.commands.disk = Disk(world.data, _EVERYTHING_MIB)
    watch = DiskWatch(world.commands, warnings)
    await watch.look()
    await watch.look()
    (told,) = (await api.get(f"{EXPERIMENTS}/{id_}")).json()["warnings"]
    assert told["code"] == CODE and "free space" in told["message"]
    assert len([one for one in caplog.records if "GiB left" in one.message]) == 1
    world.commands.disk = Disk(world.data, 0)
    await DiskWatch(world.commands, warnings).look()
    assert (await api.get(f"{EXPERIMENTS}/{id_}")).json()["warnings"] == []


async def test_experiment_that_takes_long_keeps_no_other_waiting(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its count is there once it has ended."""
    await world.add("seeded")
    slow, may_end, ended = await world.add("slow"), threading.Event(), threading.Event()

    def wait_and_measure(folder: Folder) -> DiskUse:
        if folder.path == slow.path:
            may_end.wait(30)
            ended.set()
        return measure(folder)

    monkeypatch.setattr(module, "measure", wait_and_measure)
    world.commands.disk = Disk(world.data, 0, use_s=0.2)
    refused = await api.get(f"{EXPERIMENTS}/slow/disk")
    assert refused.status_code == 503 and "could not be counted" in refused.json()["error"]
    assert (await api.get(f"{EXPERIMENTS}/seeded/disk")).status_code == 200
    may_end.set()
    await asyncio.to_thread(ended.wait, 30)
    world.commands.disk._use_s = 30
    assert (await api.get(f"{EXPERIMENTS}/slow/disk")).status_code == 200


async def test_unresponsive_disk_is_reported(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its warning, and no look at another disk waits for it."""
    id_ = (await api.post(EXPERIMENTS, json=world.config())).json()["id"]
    may_end, ask = threading.Event(), os.statvfs

    def hang(path: Path) -> os.statvfs_result:
        may_end.wait(30)
        return ask(path)

    monkeypatch.setattr(os, "statvfs", hang)
    world.commands.disk = Disk(world.data, 0, room_s=0.2)
    warnings = world.supervisor.shared.warnings
    warnings.set(id_, ExperimentWarning(code=CODE, message="little room"))
    await DiskWatch(world.commands, warnings).look()
    answer = await api.get("/api/v1/disk")
    may_end.set()
    assert answer.status_code == 503 and "no answer within" in answer.json()["error"]
    assert [one.message for one in warnings.of(id_)] == ["little room"]


async def test_experiment_that_closes_during_check_has_no_warning(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = (await api.post(EXPERIMENTS, json=world.config())).json()["id"]
    disk, warnings = Disk(world.data, _EVERYTHING_MIB), world.supervisor.shared.warnings
    ask = disk.room

    async def stop_first(folder: Path | None = None) -> module.FreeSpace:
        if id_ in world.supervisor.open_ids:
            assert (await api.post(f"{EXPERIMENTS}/{id_}/stop")).status_code == 200
        return await ask(folder)

    monkeypatch.setattr(disk, "room", stop_first)
    world.commands.disk = disk
    await DiskWatch(world.commands, warnings).look()
    assert warnings.of(id_) == ()
