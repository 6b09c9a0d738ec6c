"""The name of a data directory on other machines: it moves with the directory, and is never shared."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

import pytest

from nni_manager.app import identity

pytestmark = pytest.mark.unit


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    return data


def test_identity_is_made_once(data: Path) -> None:
    assert identity.known(data) == identity.NOBODY
    assert identity.of(data) == identity.of(data) == identity.known(data)


def test_a_copy_gets_its_own_and_says_so(data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = identity.of(data)
    copy = Path(shutil.copytree(data, tmp_path / "copy"))
    with caplog.at_level(logging.WARNING):
        own = identity.of(copy)
    assert own != name and f"{copy} is a copy of {data}" in caplog.text
    assert identity.of(copy) == own and identity.of(data) == name
    again = Path(shutil.copytree(copy, tmp_path / "again"))
    assert identity.of(again) not in (name, own)


def test_moved_directory_keeps_its_identity(data: Path, tmp_path: Path) -> None:
    name = identity.of(data)
    moved = data.rename(tmp_path / "moved")
    assert identity.of(moved) == name
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(moved, elsewhere)
    shutil.rmtree(moved)  # as `mv` does it from one file system to another
    assert identity.of(elsewhere) == name


def test_other_path_to_it_is_not_a_copy(data: Path, tmp_path: Path) -> None:
    name = identity.of(data)
    (tmp_path / "link").symlink_to(data)
    assert identity.of(tmp_path / "link") == name


def test_directory_in_place_of_the_original_keeps_the_identity(data: Path, tmp_path: Path) -> None:
    """A backup that was restored."""
    name = identity.of(data)
    backup = Path(shutil.copytree(data, tmp_path / "backup"))
    shutil.rmtree(data)
    shutil.copytree(backup, data)
    assert identity.of(data) == name


def test_identity_for_a_preflight(data: Path, tmp_path: Path) -> None:
    assert identity.shown_to_machines(data) == (identity.NOBODY, None) and list(data.iterdir()) == []
    identity.of(data)
    copy = Path(shutil.copytree(data, tmp_path / "copy"))
    name, place = identity.shown_to_machines(data)
    assert name == identity.known(data) and place is not None and place() == identity.place(data)
    assert identity.shown_to_machines(copy) == (identity.NOBODY, None), "its daemon will give it a name of its own"
    shutil.rmtree(data)
    name, place = identity.shown_to_machines(copy)
    assert name == identity.known(copy) and place is not None and place()["directory"] == str(copy)


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"directory": 1, "inode": 2})])
def test_a_place_that_cannot_be_read_says_nothing(data: Path, text: str) -> None:
    name = identity.of(data)
    (data / "identity.place").write_text(text)
    assert identity.of(data) == name
    assert json.loads((data / "identity.place").read_text())["directory"] == str(data.resolve())


@pytest.mark.parametrize("damage", ["", "\0" * 8, "not a name"])
def test_damaged_identity_is_restored_from_the_index(data: Path, damage: str) -> None:
    name = identity.of(data)
    (data / "identity").write_text(damage)
    assert identity.known(data) == identity.NOBODY
    identity.restore(data, name, str(data))
    assert identity.of(data, has_open=True) == name and not identity.is_lost(data)


def test_copy_without_identity_file_does_not_take_the_name(data: Path, tmp_path: Path) -> None:
    name = identity.of(data)
    copy = Path(shutil.copytree(data, tmp_path / "copy"))
    (copy / "identity").unlink()
    identity.restore(copy, name, str(data))
    assert identity.of(copy) != name
    moved = data.rename(tmp_path / "moved")
    (moved / "identity").unlink()
    identity.restore(moved, name, str(data))
    assert identity.of(moved) == name


def test_identity_lost_twice_is_settled_by_a_person(data: Path) -> None:
    name = identity.of(data)
    (data / "identity").write_text("")
    other = identity.of(data, has_open=True)
    assert other != name and identity.is_lost(data)
    assert identity.of(data, has_open=True) == other and identity.is_lost(data), "a restart settles nothing"
    identity.claim(data, name)
    assert identity.of(data) == name and not identity.is_lost(data)


def test_separated_directory_keeps_its_experiments(data: Path) -> None:
    name = identity.of(data)
    own = identity.separate(data)
    assert own != name and identity.former(data) == {name}


def test_identity_is_on_the_disk_when_it_is_used(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), sync(file)))
    identity.of(data)
    assert synced[:2] == [f"{data}/identity.tmp", str(data)]
