"""A data directory that was moved, and one that was copied."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from nni_manager.app import index_file
from nni_manager.domain.endpoint import Endpoint
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store.connection import connect
from nni_manager.store.folder import Folder
from nni_manager.store.index import index
from nni_manager.store.index.index import Entry

pytestmark = pytest.mark.unit


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with two experiments in it, one of them open, one elsewhere, and one half deleted."""
    data = tmp_path / "data"
    for folder in (data / "open1", data / "done1", tmp_path / "work" / "away1", data / "half1"):
        folder.mkdir(parents=True)
    path = index_file.prepare(data)
    with closing(connect(path)) as connection:
        for folder in (data / "open1", data / "done1", tmp_path / "work" / "away1"):
            index.put(connection, _entry(folder))
        index.set_leftover(connection, "half1", Folder(data / "half1"))
    index_file.prepare(data)
    return data


def test_moved_experiments_continue_in_new_place(data: Path, tmp_path: Path) -> None:
    moved = data.rename(tmp_path / "moved")
    found = _found(index_file.prepare(moved))
    assert found["open1"] == (moved / "open1", ExperimentStatus.RUNNING, True, 8080)
    assert found["done1"] == (moved / "done1", ExperimentStatus.DONE, False, None)
    assert found["away1"][0] == tmp_path / "work" / "away1"
    assert found["half1"] == moved / "half1"
    assert _found(index_file.prepare(moved)) == found


def test_copy_ignores_original_and_starts_nothing(data: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(data, tmp_path / "copy"))
    found = _found(index_file.prepare(copy))
    assert found["open1"] == (copy / "open1", ExperimentStatus.STOPPED, False, None)
    assert found["half1"] == copy / "half1"
    assert found["away1"][:3] == (tmp_path / "work" / "away1", ExperimentStatus.RUNNING, True)
    assert _found(index_file.prepare(data))["open1"][0] == data / "open1"


def test_index_moved_alone_names_the_old_place(data: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(data / index.FILE, alone)
    assert _found(index_file.prepare(alone))["open1"] == (data / "open1", ExperimentStatus.RUNNING, True, 8080)


def _entry(folder: Path) -> Entry:
    is_open = folder.name != "done1"
    return Entry(
        id=folder.name,
        folder=Folder(folder),
        name=None,
        platform="local",
        created_ms=1,
        ended_ms=None,
        status=ExperimentStatus.RUNNING if is_open else ExperimentStatus.DONE,
        is_open=is_open,
        endpoint=Endpoint(port=8080, prefix="") if folder.name == "open1" else None,
    )


def _found(path: Path) -> dict[str, object]:
    with closing(connect(path)) as connection:
        entries = index.all_entries(connection)
        found: dict[str, object] = {
            entry.id: (entry.folder.path, entry.status, entry.is_open, entry.endpoint.port if entry.endpoint else None)
            for entry in entries
        }
        return found | {id_: folder.path for id_, folder in index.leftovers(connection)}
