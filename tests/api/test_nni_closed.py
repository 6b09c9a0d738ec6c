"""NNI's API of a closed experiment: as fast as of a running one, and never out of date."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from nni_manager.api.nni.trials import GrowingList, ListCache, trial_rows
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.scheduler.experiments import closed, experiment_folder
from nni_manager.store import database as databases
from nni_manager.store import readers
from nni_manager.store.connection import connect
from nni_manager.store.index import index
from tests.api.world import World

pytestmark = pytest.mark.unit

LISTS = ("trial-jobs", "metric-data")


def path(id_: str, name: str) -> str:
    return f"/experiments/{id_}/api/v1/nni/{name}"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Databases in the order in which they were opened for reading."""
    found: list[Path] = []
    connect_readonly = readers.connect_readonly

    def noting(path: Path, **options: bool) -> sqlite3.Connection:
        found.append(path)
        return connect_readonly(path, **options)

    monkeypatch.setattr(readers, "connect_readonly", noting)
    return found


@pytest.mark.parametrize("status", [ExperimentStatus.STOPPED, ExperimentStatus.VIEWED])
async def test_database_of_closed_experiment_stays_open(
    api: httpx.AsyncClient, world: World, opened: list[Path], monkeypatch: pytest.MonkeyPatch, status: ExperimentStatus
) -> None:
    folder = await world.add("seeded", status=status)
    looked: list[object] = []
    monkeypatch.setattr(experiment_folder, "adopt", looked.append)
    first = {name: (await api.get(path("seeded", name))).content for name in (*LISTS, "check-status", "experiment")}
    for _ in range(3):
        for name, content in first.items():
            assert (await api.get(path("seeded", name))).content == content
    assert opened.count(folder.database) == len(looked) == 1


async def test_what_several_opened_at_once_is_closed(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page asks several things at a time; each would have kept descriptors for as long as the daemon runs."""
    made: list[databases.Database] = []

    class Noted(databases.Database):
        def __init__(self, path: Path, **options: bool) -> None:
            super().__init__(path, None, **options)
            made.append(self)

    monkeypatch.setattr(closed, "Database", Noted)
    await world.add("seeded")
    answers = await asyncio.gather(*(api.get(path("seeded", "experiment")) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    assert len(made) > 1, "they did not meet"
    kept = world.supervisor.closed_ones.kept("seeded")
    assert kept is not None
    assert [database for database in made if not database._closing.is_set()] == [kept.database]


async def test_lists_are_assembled_once(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    for name in LISTS:
        whole = (await api.get(path("seeded", name))).content
        experiment = world.supervisor.closed_ones.kept("seeded")
        assert experiment is not None
        statements: list[str] = []
        (connection,) = experiment.database._readers._idle
        connection.set_trace_callback(statements.append)
        assert (await api.get(path("seeded", name))).content == whole
        connection.set_trace_callback(None)
        assert statements == []


async def test_status_is_answered_from_memory(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.add("seeded", status=ExperimentStatus.VIEWED)
    first = await api.get(path("seeded", "check-status"))

    async def unused(*_: object) -> None:
        raise AssertionError("the store was asked")

    monkeypatch.setattr(databases.Database, "read", unused)
    again = await api.get(path("seeded", "check-status"))
    assert again.json() == first.json() == {"status": "VIEWED", "errors": []}
    assert again.headers["content-type"] == first.headers["content-type"]


async def test_index_change_is_seen_at_once(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    assert (await api.get(path("seeded", "check-status"))).json()["status"] == "STOPPED"
    await world.commands.view("seeded")
    assert (await api.get(path("seeded", "check-status"))).json()["status"] == "VIEWED"
    await world.commands.stop("seeded")
    assert (await api.get(path("seeded", "check-status"))).json()["status"] == "STOPPED"


@pytest.mark.parametrize("keeps_log", [True, False], ids=["in the write-ahead log", "in the database"])
async def test_foreign_write_to_the_database_is_seen(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch, keeps_log: bool
) -> None:
    """A writer such as another daemon with the same folder in its list."""
    monkeypatch.setattr(closed, "_FRESH_S", 0)
    folder = await world.add("seeded")
    before = {name: (await api.get(path("seeded", name))).json() for name in (*LISTS, "check-status")}
    with closing(connect(folder.database)) as other:
        other.execute("PRAGMA foreign_keys=OFF")
        other.execute("DELETE FROM metrics WHERE trial_id = 'good1'")
        other.execute("DELETE FROM trials WHERE id = 'good1'")
        other.execute("UPDATE experiment SET status = 'ERROR', error = 'a fault'")
        if not keeps_log:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        now = {name: (await api.get(path("seeded", name))).json() for name in before}
    assert now["check-status"] == {"status": "STOPPED", "errors": ["a fault"]}, "that it is closed, the list knows"
    assert [trial["trialJobId"] for trial in before["trial-jobs"]].count("good1") == 1
    for name in LISTS:
        assert "good1" not in str(now[name]) and len(now[name]) < len(before[name])


async def test_a_folder_that_was_exchanged_or_removed_is_noticed(api: httpx.AsyncClient, world: World) -> None:
    folder, other = await world.add("seeded"), await world.add("others", extra_trials=3)
    before = (await api.get(path("seeded", "trial-jobs"))).json()
    shutil.rmtree(folder.path)
    shutil.copytree(other.path, folder.path)
    assert len((await api.get(path("seeded", "trial-jobs"))).json()) == len(before) + 3
    shutil.rmtree(folder.path)
    assert (await api.get(path("seeded", "trial-jobs"))).status_code == 404


async def test_database_is_closed_on_resume_and_delete(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    for end in (world.commands.resume, lambda id_: world.commands.delete(id_, also=nothing_more)):
        assert (await api.get(path("seeded", "trial-jobs"))).is_success
        experiment = world.supervisor.closed_ones.kept("seeded")
        assert experiment is not None
        await end("seeded")
        assert not experiment.database._readers._idle and world.supervisor.closed_ones.kept("seeded") is None
        if world.commands.at_work("seeded"):
            await world.commands.stop("seeded")
    assert not folder.path.exists()


async def nothing_more() -> None:
    """Nothing else is to be removed."""


async def test_only_recently_read_databases_stay_open(
    api: httpx.AsyncClient, world: World, opened: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed, "_MOST_OPEN", 2)
    folders = [await world.add(f"seeded{number}") for number in range(3)]
    for number in (0, 1, 0, 2, 0, 1):
        await api.get(path(f"seeded{number}", "trial-jobs"))
    assert [opened.count(folder.database) for folder in folders] == [1, 2, 1]
    assert [world.supervisor.closed_ones.kept(f"seeded{number}") is None for number in range(3)] == [False, False, True]


async def test_many_readers_at_once_get_whole_answers(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed, "_MOST_OPEN", 1)
    for number in range(3):
        await world.add(f"seeded{number}", extra_trials=number)
    ids = [f"seeded{number % 3}" for number in range(30)]
    found = await asyncio.gather(*(api.get(path(id_, "trial-jobs")) for id_ in ids))
    counts = [len(answer.json()) for answer in found]
    assert counts == [counts[0] + number % 3 for number in range(30)]


async def test_unchanged_index_is_not_read(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    await api.get(path("seeded", "trial-jobs"))
    asked: list[Any] = []
    (connection,) = world.supervisor.index._readers._idle
    connection.set_trace_callback(asked.append)
    await api.get(path("seeded", "trial-jobs"))
    assert asked == []
    await world.supervisor.index.write(lambda c: index.set_config(c, "seeded", "other", "local"))
    assert (await world.commands.entry("seeded")).name == "other"
    connection.set_trace_callback(None)


def test_lists_of_closed_experiments_share_their_room(tmp_path: Path) -> None:
    cache = ListCache(100)
    lists = [GrowingList(trial_rows("/f"), cache) for _ in range(3)]
    for number in (0, 1, 0, 2):
        lists[number]._kept = growing = lists[number]._kept.plus(b"x" * 40, 10)
        cache.use(lists[number], 40)
    assert [bool(one._kept.size) for one in lists] == [True, False, True] and growing.size == 40
    lists[1]._kept = lists[1]._kept.plus(b"x" * 101, 10)
    cache.use(lists[1], 101)
    assert [one._kept.size for one in lists] == [0, 0, 0], "a list above the limit is not kept"
