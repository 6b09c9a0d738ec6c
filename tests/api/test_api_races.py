"""Concurrent commands on one experiment: they are serialised, and index, folder and port agree afterwards."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import httpx
import pytest

from nni_manager.domain.endpoint import Endpoint
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.scheduler.experiments import supervisor
from nni_manager.store.experiment import experiments
from nni_manager.store.folder import Folder, Ownership
from nni_manager.store.index import index
from tests.api.world import World
from tests.scheduler.fake_endpoints import FakeEndpoints

pytestmark = pytest.mark.unit

EXPERIMENTS = "/api/v1/experiments"


def stored(folder: Folder) -> experiments.StoredExperiment:
    with closing(sqlite3.connect(folder.database)) as connection:
        return experiments.load(connection)


async def assert_at_work(world: World, id: str) -> None:
    """The next daemon would continue it."""
    entry = await world.commands.entry(id)
    assert world.commands.at_work(id) is not None
    assert (entry.is_open, entry.status) == (True, ExperimentStatus.RUNNING)


async def test_concurrent_resumes(world: World, api: httpx.AsyncClient, listener: FakeEndpoints) -> None:
    await world.add("twice")
    wish = {"endpoint": {"port": 8888}}
    answers = await asyncio.gather(*(api.post(f"{EXPERIMENTS}/twice/resume", json=wish) for _ in range(4)))
    assert [answer.status_code for answer in answers] == [200] * 4, [answer.text for answer in answers]
    await assert_at_work(world, "twice")
    assert listener.endpoints == {"twice": Endpoint(port=8888)}


async def test_concurrent_resume_and_view(world: World, api: httpx.AsyncClient) -> None:
    """In either order: a viewed experiment can be resumed, a running one not be viewed."""
    await world.add("mixed")
    resumed, viewed = await asyncio.gather(
        api.post(f"{EXPERIMENTS}/mixed/resume"), api.post(f"{EXPERIMENTS}/view", json={"id": "mixed"})
    )
    assert resumed.status_code == 200 and viewed.status_code in (200, 409), viewed.text
    await assert_at_work(world, "mixed")
    assert world.supervisor.viewed == set()


@pytest.mark.parametrize("first", ["resume", "delete"])
async def test_concurrent_resume_and_delete(world: World, api: httpx.AsyncClient, first: str) -> None:
    folder = await world.add("going")
    calls = [api.post(f"{EXPERIMENTS}/going/resume"), api.delete(f"{EXPERIMENTS}/going")]
    answers = await asyncio.gather(*(calls if first == "resume" else reversed(calls)))
    statuses = [answer.status_code for answer in (answers if first == "resume" else reversed(answers))]
    assert statuses in ([200, 409], [404, 204])
    if statuses == [200, 409]:
        await assert_at_work(world, "going")
        assert folder.database.exists()
    else:
        assert world.commands.at_work("going") is None and not folder.path.exists()
        assert await world.commands.entries() == []


async def test_concurrent_resume_and_stop(world: World, api: httpx.AsyncClient) -> None:
    """Stopping a stopped experiment succeeds."""
    folder = await world.add("ended")
    resumed, stopped = await asyncio.gather(
        api.post(f"{EXPERIMENTS}/ended/resume"), api.post(f"{EXPERIMENTS}/ended/stop")
    )
    assert (resumed.status_code, stopped.status_code) == (200, 200)
    entry = await world.commands.entry("ended")
    assert entry.is_open == (world.commands.at_work("ended") is not None)
    assert stored(folder).status is entry.status


async def test_stopping_experiment_is_not_resumed(
    world: World, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be stopped all the same."""
    await world.add("going")
    await api.post(f"{EXPERIMENTS}/going/resume")
    experiment = world.supervisor.find("going")
    with monkeypatch.context() as patch:
        patch.setattr(experiment.loop, "turn", _no_turn)  # between the request and the loop's turn
        await experiment.database.write(lambda c: experiments.set_status(c, ExperimentStatus.STOPPING, 1))
        answer = await api.post(f"{EXPERIMENTS}/going/resume")
    assert answer.status_code == 409 and "is being stopped" in answer.json()["error"]
    experiment.loop.wake()
    await world.supervisor.closed("going")
    assert (await api.post(f"{EXPERIMENTS}/going/resume")).status_code == 200
    await assert_at_work(world, "going")


async def _no_turn() -> None:
    await asyncio.sleep(0.01)


async def test_a_folder_that_another_manager_works_on_is_not_touched(world: World, api: httpx.AsyncClient) -> None:
    folder = await world.add("other")
    with closing(sqlite3.connect(folder.database)) as connection, connection:
        experiments.set_status(connection, ExperimentStatus.STOPPING, 1)
    before = stored(folder)
    lock = Ownership(folder.lock, "it")
    try:
        answer = await api.post(f"{EXPERIMENTS}/other/resume", json={"endpoint": {"port": 8888}})
    finally:
        lock.release()
    assert answer.status_code == 409 and "is in use by process" in answer.json()["error"]
    assert stored(folder) == before
    assert (await asyncio.to_thread(index.read_folder, folder)).endpoint is None


@pytest.mark.parametrize("maker", ["nni", "us"])
async def test_a_folder_that_nni_works_on_is_not_removed(world: World, api: httpx.AsyncClient, maker: str) -> None:
    """NNI keeps its database open without a lock; an open database of ours may only be read by another process."""
    folder = await world.add("theirs")
    if maker == "nni":
        folder.database.unlink()
        with closing(sqlite3.connect(folder.database)) as connection:
            for table in ("TrialJobEvent", "MetricData", "ExperimentProfile"):
                connection.execute(f"CREATE TABLE {table} (a)")
    with folder.database.open("rb"):
        answer = await api.delete(f"{EXPERIMENTS}/theirs")
        assert answer.status_code == (409 if maker == "nni" else 204)
        assert maker == "us" or "stop that experiment with the nnictl that started it" in answer.json()["error"]
        assert folder.database.exists() == (maker == "nni")
    assert (await api.delete(f"{EXPERIMENTS}/theirs")).status_code == (204 if maker == "nni" else 404)
    assert not folder.path.exists()


async def test_stopped_folder_listed_as_open_is_closed_again(world: World, listener: FakeEndpoints) -> None:
    """As left by a daemon that was killed during `resume`."""
    folder = await world.add("half")
    entry = replace(await world.commands.entry("half"), status=ExperimentStatus.RUNNING, is_open=True)
    await world.supervisor.write(lambda c: index.put(c, entry))
    listener.restore("half", Endpoint(port=8888))
    await world.supervisor.open(entry)
    await world.supervisor.closed("half")
    found = await world.commands.entry("half")
    assert (found.status, found.is_open, found.endpoint, listener.endpoints) == (
        ExperimentStatus.STOPPED,
        False,
        None,
        {},
    )
    assert stored(folder).status is ExperimentStatus.STOPPED


async def test_slow_disk_of_closed_experiment_blocks_no_other(
    world: World, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be on another, slow disk; its page polls."""
    await world.add("closed")
    asked_in, path = [], Folder.database.fget
    assert path is not None

    def noted(folder: Folder) -> Path:
        asked_in.append(threading.current_thread())
        return cast(Path, path(folder))

    monkeypatch.setattr(Folder, "database", property(noted))
    assert (await api.get("/experiments/closed/api/v1/nni/trial-jobs")).status_code == 200
    assert asked_in and threading.main_thread() not in asked_in


async def test_unopenable_experiment_stays_stopped(
    world: World, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise InvalidInput("no")

    folder = await world.add("never")
    monkeypatch.setattr(supervisor, "open_experiment", refuse)
    assert (await api.post(f"{EXPERIMENTS}/never/resume")).status_code == 400
    assert stored(folder).status is ExperimentStatus.STOPPED
    assert (await api.get(f"{EXPERIMENTS}/never")).json()["status"] == "STOPPED"
