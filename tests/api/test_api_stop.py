"""Stopping what its loop cannot stop: experiments that were not opened, and loops that fail."""

from __future__ import annotations

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
            folder.database.write_bytes(b"this is no database")
        else:
            with closing(sqlite3.connect(folder.database)) as connection:
                connection.execute("PRAGMA user_version = 99")
        await world.supervisor._try_open(await world.service.entry(id_))
    answer = await api.post(f"{EXPERIMENTS}/newer/stop")
    assert (answer.status_code, ended) == (409, [])
    assert "is not stopped, and its trials go on" in answer.text and "use the version that wrote it" in answer.text
    assert (await api.post(f"{EXPERIMENTS}/stop")).status_code == 409
    assert ended == ["broken"], "the others are stopped"
    assert ((await world.service.entry("newer")).is_open, world.service.is_open("newer")) == (True, True)
    assert (await world.service.entry("broken")).status is ExperimentStatus.STOPPED
