"""What an experiment takes on disk, by part."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nni_manager.scheduler.disk import measure
from nni_manager.store.folder import Folder

pytestmark = pytest.mark.unit

_PIECE = 64 * 1024


def write(path: Path, pieces: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(pieces * _PIECE))


def test_each_part_is_counted(tmp_path: Path) -> None:
    places = {"db/nni.sqlite": 1, "trials/abc/stdout": 2, "checkpoint/a/b": 3, "code/tree/c.py": 4, "log/l": 5, "x": 6}
    for name, pieces in places.items():
        write(tmp_path / name, pieces)
    found = measure(Folder(tmp_path))
    parts = (found.database, found.trials, found.checkpoints, found.code, found.logs, found.other)
    assert [round(part / _PIECE) for part in parts] == [1, 2, 3, 4, 5, 6]
    assert found.total == sum(parts) and found.files == 6


def test_links_take_no_room(tmp_path: Path) -> None:
    folder = tmp_path / "experiment"
    write(tmp_path / "elsewhere", 10)
    write(folder / "trials" / "first")
    os.link(folder / "trials" / "first", folder / "trials" / "second")
    (folder / "trials" / "away").symlink_to(tmp_path)
    assert measure(Folder(folder)).total < 2 * _PIECE


def test_sparse_file_counts_allocated_blocks(tmp_path: Path) -> None:
    (tmp_path / "trials").mkdir()
    with open(tmp_path / "trials" / "sparse", "wb") as file:
        file.truncate(2**30)
    assert measure(Folder(tmp_path)).total < 2**20


def test_missing_folder_takes_nothing(tmp_path: Path) -> None:
    assert measure(Folder(tmp_path / "gone")).total == 0
