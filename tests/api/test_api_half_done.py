"""Records of an experiment that is being made or deleted, for the daemon after one that was killed."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.scheduler.experiments import launcher
from nni_manager.store.folder import Folder, Ownership
from nni_manager.store.index import index
from tests.api.world import World, config

pytestmark = pytest.mark.unit

EXPERIMENTS = "/api/v1/experiments"


async def noted(world: World) -> list[str]:
    return [id_ for id_, _ in await world.supervisor.index.read(index.leftovers)]


async def create(world: World, api: httpx.AsyncClient) -> httpx.Response:
    return await api.post(EXPERIMENTS, json={"config": json.dumps(config(world.code, world.data))})


def read_notes(world: World) -> list[tuple[str, Path]]:
    """From any thread."""
    connection = index.connect_readonly(world.data / "index.sqlite")
    try:
        return [(id_, folder.path) for id_, folder in index.leftovers(connection)]
    finally:
        connection.close()


async def test_folder_is_noted_from_creation_until_listed(
    world: World, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    make = Folder.create

    def watch(folder: Folder, data_directory: Path) -> None:
        seen.append((folder.path, folder.path.exists(), read_notes(world)))
        make(folder, data_directory)

    monkeypatch.setattr(Folder, "create", watch)
    answer = await create(world, api)
    assert answer.status_code == 201, answer.text
    id_ = answer.json()["id"]
    assert seen == [(world.data / id_, False, [(id_, world.data / id_)])]
    assert await noted(world) == []


async def test_failed_creation_is_not_recorded(
    world: World, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Folder) -> None:
        raise InvalidInput("not today")

    monkeypatch.setattr(launcher.index, "read_folder", refuse)
    assert (await create(world, api)).status_code == 400
    assert await noted(world) == [] and await world.commands.entries() == []
    assert not list(world.data.glob("*/db"))


async def test_experiment_being_made_is_not_removed(
    world: World, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the daemon ends meanwhile: a thread cannot be interrupted and would go on writing."""
    begun, go_on = asyncio.Event(), threading.Event()
    loop, make = asyncio.get_running_loop(), Folder.create

    def slow(folder: Folder, data_directory: Path) -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(10)
        make(folder, data_directory)

    monkeypatch.setattr(Folder, "create", slow)
    creating = asyncio.create_task(create(world, api))
    await begun.wait()
    creating.cancel()
    await asyncio.wait({creating}, timeout=0.1)
    assert len(await noted(world)) == 1
    go_on.set()
    await asyncio.wait({creating})
    assert creating.cancelled() and await noted(world) == []
    assert not list(world.data.glob("*/db"))


async def test_locked_folder_is_not_taken(
    world: World, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = await world.add("theirs")
    await world.supervisor.index.write(lambda c: index.remove(c, "theirs"))
    submission = launcher.Submission.__init__

    def named(self: launcher.Submission, **fields: object) -> None:
        submission(self, **{**fields, "id": "theirs"})  # type: ignore[arg-type]

    monkeypatch.setattr(launcher.Submission, "__init__", named)
    assert (await create(world, api)).status_code == 409
    assert folder.database.exists() and await noted(world) == []


async def test_a_folder_is_noted_while_it_is_deleted(
    world: World, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = await world.add("going")
    seen = []
    remove = Folder.remove

    def watch(self: Folder) -> bool:
        seen.append(read_notes(world))
        return remove(self)

    monkeypatch.setattr(Folder, "remove", watch)
    assert (await api.delete(f"{EXPERIMENTS}/going")).status_code == 204
    assert seen == [[("going", folder.path)]]
    assert await noted(world) == [] and not folder.path.exists()


async def test_experiment_of_another_manager_is_not_deleted(world: World, api: httpx.AsyncClient) -> None:
    folder = await world.add("theirs")
    lock = Ownership(folder.lock, "the folder")
    refused = await api.delete(f"{EXPERIMENTS}/theirs")
    assert refused.status_code == 409 and f"in use by process {os.getpid()}" in refused.json()["error"]
    assert folder.database.exists() and await noted(world) == []
    lock.release()
    assert (await api.delete(f"{EXPERIMENTS}/theirs")).status_code == 204


async def test_a_folder_that_cannot_be_removed_stays_noted(
    world: World, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.add("stuck")
    monkeypatch.setattr(Folder, "remove", lambda _: ["db: it is in use"])
    assert (await api.delete(f"{EXPERIMENTS}/stuck")).status_code == 204
    assert await noted(world) == ["stuck"] and await world.commands.entries() == []


async def test_cancelled_resume_leaves_folder_and_index_stopped(
    world: World, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the daemon ends meanwhile: the thread goes on."""
    folder = await world.add("resumed")
    begun, go_on, over = asyncio.Event(), threading.Event(), threading.Event()
    loop, reopen = asyncio.get_running_loop(), launcher.experiment_folder.reopen

    def slow(*given: Any) -> ExperimentStatus:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(10)
        try:
            return reopen(*given)
        finally:
            over.set()

    monkeypatch.setattr(launcher.experiment_folder, "reopen", slow)
    resuming = asyncio.create_task(api.post(f"{EXPERIMENTS}/resumed/resume"))
    await begun.wait()
    resuming.cancel()
    await asyncio.wait({resuming}, timeout=0.1)
    go_on.set()
    await asyncio.wait({resuming})
    assert resuming.cancelled() and await asyncio.to_thread(over.wait, 10)
    listed, stored = await world.commands.entry("resumed"), await asyncio.to_thread(index.read_folder, folder)
    assert (listed.status, listed.is_open) == (stored.status, stored.is_open) == (ExperimentStatus.STOPPED, False)
