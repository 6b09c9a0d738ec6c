"""The file of the index: missing, empty, half made, or not readable."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nni_manager.app import index_file
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store import migrate
from nni_manager.store.connection import connect
from nni_manager.store.experiment import experiments
from nni_manager.store.folder import Folder
from nni_manager.store.index import index

pytestmark = pytest.mark.unit


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three stopped experiments in folders."""
    for id_ in ("a", "b", "c"):
        folder = Folder(tmp_path / id_)
        folder.create(tmp_path)
        migrate.migrate(folder.database, "experiment")
        with closing(connect(folder.database)) as connection:
            config = json.dumps({"trainingService": {"platform": "local"}})
            experiments.create(connection, id=id_, config=config, interpreter="", folder=str(folder.path), now_ms=1)
            experiments.set_status(connection, ExperimentStatus.STOPPED, 2)
    return tmp_path


def reopen(data: Path, id_: str) -> None:
    with closing(connect(Folder(data / id_).database)) as connection:
        experiments.set_status(connection, ExperimentStatus.RUNNING, 3)


def listed(path: Path) -> list[str]:
    with closing(connect(path)) as connection:
        return [entry.id for entry in index.all_entries(connection)]


def test_missing_index_is_made_from_the_folders(data: Path) -> None:
    assert listed(index_file.prepare(data)) == ["a", "b", "c"]


def test_open_experiments_are_not_listed_without_their_keeper(data: Path) -> None:
    """At the start of a daemon the keeper names its jobs: see `found_folders`."""
    reopen(data, "b")
    assert listed(index_file.prepare(data)) == ["a", "c"]


def test_existing_index_is_not_made_again(data: Path) -> None:
    path = index_file.prepare(data)
    with closing(connect(path)) as connection:
        index.remove(connection, "b")
    assert listed(index_file.prepare(data)) == ["a", "c"]


def test_empty_file_is_ignored(data: Path) -> None:
    (data / "index.sqlite").touch()
    assert listed(index_file.prepare(data)) == ["a", "b", "c"]


def test_killed_while_making_the_index_leaves_nothing_or_all(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, puts = index.put, []

    def die_at_the_second(connection: sqlite3.Connection, entry: index.Entry) -> None:
        puts.append(entry.id)
        if len(puts) == 2:
            raise KeyboardInterrupt
        put(connection, entry)

    with monkeypatch.context() as patch:
        patch.setattr(index, "put", die_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            index_file.prepare(data)
    assert listed(index_file.prepare(data)) == ["a", "b", "c"]
    assert not list(data.glob("index.sqlite.new*"))


@pytest.mark.parametrize("is_original_there", [True, False])
def test_index_of_a_copy_opens_nothing(
    data: Path, tmp_path_factory: pytest.TempPathFactory, is_original_there: bool
) -> None:
    for id_ in "abc":
        reopen(data, id_)
    copy = Path(shutil.copytree(data, tmp_path_factory.mktemp("elsewhere") / "copy"))
    if not is_original_there:
        shutil.rmtree(data / "a")
    with closing(connect(index_file.prepare(copy))) as connection:
        found = {entry.id: entry for entry in index.all_entries(connection)}
    assert found.keys() == ({"a", "b", "c"} if is_original_there else {"b", "c"})
    assert {entry.status for entry in found.values()} == {ExperimentStatus.STOPPED} and found["b"].results


def test_second_name_of_a_directory_is_not_a_copy(data: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    reopen(data, "b")
    second_name = tmp_path_factory.mktemp("elsewhere") / "second"
    second_name.symlink_to(data)
    assert listed(index_file.prepare(second_name)) == ["a", "c"], "a copy of b would be listed as stopped"


def test_index_of_a_copy_has_the_results_of_open_experiments(
    data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reopen(data, "a")
    copy = Path(shutil.copytree(data, tmp_path_factory.mktemp("elsewhere") / "copy"))
    (copy / "b" / "db" / "nni.sqlite").write_text("no database " * 99)
    with closing(connect(index_file.prepare(copy))) as connection:
        found = {entry.id: entry for entry in index.all_entries(connection)}
    assert (found["a"].status, found["a"].results) == (
        ExperimentStatus.STOPPED,
        index.read_folder(Folder(copy / "a")).results,
    )
    assert found["a"].results and found["b"].results == ""


def test_stale_wal_files_are_not_read(data: Path) -> None:
    """SQLite would apply the old files to the new database."""
    path = index_file.prepare(data)
    with closing(connect(path)) as connection:
        index.remove(connection, "a")
        shutil.copy(f"{path}-wal", data / "kept")
    path.unlink()
    shutil.move(data / "kept", f"{path}-wal")
    assert listed(index_file.prepare(data)) == ["a", "b", "c"]


def _garbage(path: Path) -> None:
    path.write_bytes(os.urandom(8192))


def _half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _later_pages(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))


@pytest.mark.parametrize("spoil", [_garbage, _half, _later_pages])
def test_corrupt_index_is_set_aside_and_made_again(
    data: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = index_file.prepare(data)
    spoil(path)
    assert listed(index_file.prepare(data)) == ["a", "b", "c"]
    (aside,) = data.glob("index.sqlite.corrupt-*[0-9]")
    (sentence,) = caplog.messages
    assert "cannot be read" in sentence and str(aside) in sentence and "--experiment_dir" in sentence


@pytest.mark.parametrize("is_new", [True, False])
def test_index_is_private_to_its_owner(tmp_path: Path, is_new: bool) -> None:
    if not is_new:
        migrate.migrate(tmp_path / index.FILE, "index")
        (tmp_path / index.FILE).chmod(0o644)
    path = index_file.prepare(tmp_path)
    with closing(connect(path)) as connection:
        connection.execute("SELECT count(*) FROM experiments").fetchone()
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob(f"{index.FILE}*")}
    assert modes and set(modes.values()) == {0o600} and f"{index.FILE}-shm" in modes
