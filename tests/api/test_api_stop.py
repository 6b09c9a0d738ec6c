"""Stopping what its loop cannot stop: experiments that were not opened, and loops that fail."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import httpx
import pytest

from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.machines.keeper import orphaned_jobs
from nni_manager.store.experiment import experiments
from nni_manager.store.folder import Folder
from tests.api.world import World

pytestmark = pytest.mark.unit

EXPERIMENTS = "/api/v1/experiments"


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of experiments whose jobs at the keeper were ended."""
    ended: list[str] = []

    async def end(_keeper: object, id: str, **_options: object) -> None:
        ended.append(id)

    monkeypatch.setattr(orphaned_jobs, "end", end)
    return ended


def stored(folder: Folder) -> experiments.StoredExperiment:
    with closing(sqlite3.connect(folder.database)) as connection:
        return experiments.load(connection)


async def test_stop_of_an_experiment_with_a_newer_schema_is_refused(
    world: World, api: httpx.AsyncClient, ended: list[str]
) -> None:
    """The version that can read it would find failed trials: jobs that ended, and no stop."""
    for id_ in ("newer", "broken"):
        folder = await world.add(id_, status=ExperimentStatus.RUNNING)
        if id_ == "broken":
            folder.database.write_bytes(b"this is not a database")
        else:
            with closing(sqlite3.connect(folder.database)) as connection:
                connection.execute("PRAGMA user_version = 99")
        await world.supervisor._try_open(await world.commands.entry(id_))
    answer = await api.post(f"{EXPERIMENTS}/newer/stop")
    assert (answer.status_code, ended) == (409, [])
    assert "is not stopped, and its trials continue" in answer.text and "use the version that wrote it" in answer.text
    assert (await api.post(f"{EXPERIMENTS}/stop")).status_code == 409
    assert ended == ["broken"], "the others are stopped"
    assert ((await world.commands.entry("newer")).is_open, world.commands.is_open("newer")) == (True, True)
    assert (await world.commands.entry("broken")).status is ExperimentStatus.STOPPED


async def test_stop_with_failing_loop_reports_error(
    world: World, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, ended: list[str]
) -> None:
    folder = await world.add("faulty")
    await api.post(f"{EXPERIMENTS}/faulty/resume")
    loop = world.supervisor.find("faulty").loop
    with monkeypatch.context() as patch:
        patch.setattr(loop, "turn", _fail)
        async with asyncio.timeout(10):
            answer = await api.post(f"{EXPERIMENTS}/faulty/stop")
        assert (answer.status_code, ended) == (500, ["faulty"])
        assert "is still being stopped" in answer.text and "KeyError" in answer.text
        assert stored(folder).status is ExperimentStatus.STOPPING
        refused = [await api.post(f"{EXPERIMENTS}/faulty/resume"), await api.delete(f"{EXPERIMENTS}/faulty")]
        assert [answer.status_code for answer in refused] == [409] * 2
        assert ["is being stopped" in answer.text for answer in refused] == [True] * 2
    await api.post(f"{EXPERIMENTS}/faulty/resume")  # tries again at once
    async with asyncio.timeout(10):
        await loop.closed.wait()
        await world.supervisor.closed("faulty")
    assert (await api.post(f"{EXPERIMENTS}/faulty/resume")).status_code == 200
    assert stored(folder).status is ExperimentStatus.RUNNING


async def test_unstorable_stop_reports_state_of_trials(
    world: World, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.add("full")
    await api.post(f"{EXPERIMENTS}/full/resume")
    with monkeypatch.context() as patch:
        database = world.supervisor.find("full").database
        patch.setattr(database, "_set_trouble", lambda _: None)  # a commit under way would end it
        patch.setattr(database, "trouble", "the disk is full")
        answer = await api.post(f"{EXPERIMENTS}/full/stop")
    assert answer.status_code == 503 and "nothing was changed" in answer.text
    assert "the trials of experiment full continue meanwhile" in answer.text and "free space" in answer.text


async def test_fault_that_repeats_is_logged_with_its_stack_once(
    world: World, api: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await world.add("faulty")
    await api.post(f"{EXPERIMENTS}/faulty/resume")
    experiment = world.supervisor.find("faulty")
    for _ in range(10):
        experiment._note_fault(KeyError("phase"))
    experiment._note_fault(KeyError("other"))
    found = [record for record in caplog.records if "the loop of experiment faulty failed" in record.getMessage()]
    assert [bool(record.exc_info) for record in found] == [True, False, False, False, True]
    assert "8 times" in found[3].getMessage()


async def _fail() -> None:
    raise KeyError("phase")
