"""The list of experiments, and how it is made again from the folders."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nni_manager.domain.endpoint import Endpoint
from nni_manager.domain.errors import NotFound, StoreCorrupt, StoreError
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store.connection import connect
from nni_manager.store.experiment import experiments
from nni_manager.store.folder import Folder
from nni_manager.store.index import index, list_summary
from nni_manager.store.index.index import Entry
from nni_manager.store.migrate import migrate

pytestmark = pytest.mark.unit

ENTRY = Entry(
    id="exp1",
    folder=Folder(Path("/work/exp1")),
    name="digits",
    platform="local",
    status=ExperimentStatus.RUNNING,
    created_ms=5,
    ended_ms=None,
    is_open=True,
)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    path = tmp_path / "index.sqlite"
    migrate(path, "index")
    connection = connect(path)
    yield connection
    connection.close()


def make_folder(place: Path, empty_database: Path, id: str, config: dict[str, object], *, at: int = 0) -> Folder:
    folder = Folder(place / id)
    (folder.path / "db").mkdir(parents=True)
    shutil.copy(empty_database, folder.database)
    connection = connect(folder.database)
    experiments.create(connection, id=id, config=json.dumps(config), interpreter="", folder=str(folder.path), now_ms=at)
    connection.close()
    return folder


def test_entries_come_back_oldest_first(connection: sqlite3.Connection) -> None:
    later = replace(ENTRY, id="exp0", created_ms=6, ended_ms=7, name=None, is_open=False, platform="local,remote")
    for entry in (later, ENTRY, later):
        index.put(connection, entry)
    assert index.all_entries(connection) == [ENTRY, later]
    assert index.get(connection, "exp0") == later


def test_a_view_is_kept_until_the_experiment_is_stopped(connection: sqlite3.Connection) -> None:
    endpoint = Endpoint(port=8080, prefix="my/pre")
    index.put(connection, viewed := replace(ENTRY, endpoint=endpoint, launched_ms=8))
    assert index.get(connection, "exp1") == viewed
    index.set_endpoint(connection, "exp1", Endpoint(port=8081))
    index.set_status(connection, "exp1", ExperimentStatus.DONE, 9, is_open=True)
    assert index.get(connection, "exp1").endpoint == Endpoint(port=8081)
    index.set_status(connection, "exp1", ExperimentStatus.STOPPED, 9, is_open=False)
    assert index.get(connection, "exp1").endpoint is None
    index.put(connection, viewed)
    index.set_endpoint(connection, "exp1", None)
    assert index.get(connection, "exp1").endpoint is None


def test_results_of_an_open_one_are_not_kept(connection: sqlite3.Connection) -> None:
    """They change; where it cannot be opened again, nothing is said in their place."""
    index.put(connection, replace(ENTRY, is_open=True, results='{"trials_made": 0}'))
    assert index.get(connection, ENTRY.id).results == ""
    index.put(connection, replace(ENTRY, is_open=False, results='{"trials_made": 0}'))
    assert index.get(connection, ENTRY.id).results == '{"trials_made": 0}'


def test_changes(connection: sqlite3.Connection) -> None:
    index.put(connection, ENTRY)
    index.set_status(connection, "exp1", ExperimentStatus.STOPPED, 9, is_open=False)
    index.set_config(connection, "exp1", None, "scripted,local")
    assert index.get(connection, "exp1") == replace(
        ENTRY, status=ExperimentStatus.STOPPED, ended_ms=9, is_open=False, name=None, platform="scripted,local"
    )
    index.remove(connection, "exp1")
    assert index.all_entries(connection) == []
    sentence = "cannot find experiment exp1, or it was deleted; `nnictl experiment list` shows all"
    with pytest.raises(NotFound, match=sentence):
        index.get(connection, "exp1")


def test_entry_is_either_listed_or_a_leftover(connection: sqlite3.Connection) -> None:
    index.put(connection, ENTRY)
    index.set_leftover(connection, "exp1", ENTRY.folder)
    index.set_leftover(connection, "exp1", ENTRY.folder)
    assert index.leftovers(connection) == [("exp1", ENTRY.folder)]
    assert index.all_entries(connection) == []
    index.put(connection, ENTRY)
    assert index.leftovers(connection) == []
    index.set_leftover(connection, "exp1", ENTRY.folder)
    index.drop_leftover(connection, "exp1")
    assert index.leftovers(connection) == []


@pytest.mark.parametrize(
    ("config", "platform", "name"),
    [
        ({"trainingService": {"platform": "local"}, "experimentName": "ä"}, "local", "ä"),
        ({"trainingService": {"platform": "remote"}}, "remote", None),
        ({"trainingService": [{"platform": "local"}, {"platform": "remote"}]}, "local,remote", None),
        ({}, "", None),
    ],
)
def test_an_entry_is_made_from_a_folder(
    tmp_path: Path, empty_database: Path, config: dict[str, object], platform: str, name: str | None
) -> None:
    folder = make_folder(tmp_path, empty_database, "exp1", config, at=3)
    entry = index.read_folder(folder)
    assert replace(entry, results="") == replace(ENTRY, folder=folder, platform=platform, name=name, created_ms=3)
    assert (found := list_summary.parse(entry.results)) and (found.counts, found.trials_made, found.best) == (
        {},
        0,
        None,
    )


def test_the_index_is_made_again_from_the_folders(
    tmp_path: Path, empty_database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config: dict[str, object] = {"trainingService": {"platform": "local"}}
    for id_ in ("b", "a"):
        make_folder(tmp_path, empty_database, id_, config)
    stopped = connect(tmp_path / "a" / "db" / "nni.sqlite")
    experiments.set_status(stopped, ExperimentStatus.STOPPED, 8)
    stopped.close()
    (tmp_path / "empty" / "db").mkdir(parents=True)
    for id_ in ("broken", "rowless"):
        (tmp_path / id_ / "db").mkdir(parents=True)
    (tmp_path / "broken" / "db" / "nni.sqlite").write_text("no database " * 99)
    shutil.copy(empty_database, tmp_path / "rowless" / "db" / "nni.sqlite")
    with caplog.at_level(logging.WARNING):
        found = index.find_folders(tmp_path)
    assert [(entry.id, entry.is_open, entry.ended_ms) for entry in found] == [
        ("a", False, 8),
        ("b", True, None),
        ("broken", False, None),
    ]
    assert "cannot be read" in found[2].note and not found[0].note
    names = ("broken", "empty", "rowless")
    assert [next(name for name in names if f"/{name} " in text) for text in caplog.messages] == list(names)


def test_folders_that_cannot_be_read_are_one_of_our_errors(tmp_path: Path, empty_database: Path) -> None:
    folder = Folder(tmp_path / "exp1")
    (folder.path / "db").mkdir(parents=True)
    with pytest.raises(NotFound, match=r"the database of experiment exp1 is gone: .*exp1/db/nni\.sqlite"):
        index.read_folder(folder)
    folder.database.touch()
    with pytest.raises(StoreCorrupt, match=r"the database .*exp1/db/nni\.sqlite is empty"):
        index.read_folder(folder)
    folder.database.write_text("no database " * 99)
    with pytest.raises(StoreError):
        index.read_folder(folder)
    shutil.copy(empty_database, folder.database)
    with pytest.raises(StoreError, match="contains no experiment; its creation was interrupted"):
        index.read_folder(folder)
    connection = connect(folder.database)
    experiments.create(connection, id="exp1", config="{", interpreter="", folder="", now_ms=0)
    connection.close()
    with pytest.raises(StoreError, match=r"the config in the database .* cannot be read"):
        index.read_folder(folder)
    folder.database.unlink()
    connection = sqlite3.connect(folder.database)
    connection.execute("CREATE TABLE somebody_elses (x)")
    connection.close()
    with pytest.raises(StoreError, match="contains no experiment of this program"):
        index.read_folder(folder)


def test_a_folder_on_a_network_is_found_by_its_pointer(tmp_path: Path, empty_database: Path) -> None:
    home = make_folder(tmp_path / "databases", empty_database, "exp1", {"trainingService": {"platform": "local"}})
    (tmp_path / "exp1" / "db").mkdir(parents=True)
    (tmp_path / "exp1" / "db" / "pointer.json").write_text(json.dumps({"database": str(home.database)}))
    (entry,) = index.find_folders(tmp_path)
    assert (entry.id, entry.folder.path) == ("exp1", tmp_path / "exp1")


@pytest.mark.timeout(10)
def test_a_pipe_in_place_of_a_database_is_not_waited_for(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "exp1")
    folder.create(tmp_path)
    os.mkfifo(folder.database)
    with pytest.raises(StoreCorrupt, match="is not a file"):
        index.read_folder(folder)
    assert index.find_folders(tmp_path) == []
