"""What lies where, also when the folder is on a disk that other machines write too."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nni_manager.domain.errors import StoreCorrupt
from nni_manager.store import folder as module
from nni_manager.store.folder import Folder

pytestmark = pytest.mark.unit


def test_a_folder_is_private_and_complete(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "made" / "exp1")
    folder.create(tmp_path)
    assert {path.name for path in folder.path.iterdir()} == {"db", "log", "trials", "checkpoint", "environments"}
    assert {path.stat().st_mode & 0o777 for path in (folder.path, *folder.path.iterdir())} == {0o700}
    assert folder.database == folder.path / "db" / "nni.sqlite"
    assert folder.lock == folder.path / "db" / "owner.lock"
    with pytest.raises(OSError):
        folder.create(tmp_path)


def test_trials_are_linked_at_nnis_path(tmp_path: Path) -> None:
    made = Folder(tmp_path / "exp1")
    made.create(tmp_path)
    made.path.rename(tmp_path / "moved")
    folder = Folder(tmp_path / "moved")
    place = folder.path / "environments" / "local-env" / "trials"
    (folder.trials / "abcde").mkdir()
    assert (place / "abcde").samefile(folder.trials / "abcde")
    assert {path.stat().st_mode & 0o777 for path in (place.parent, place.parent.parent)} == {0o700}
    folder.remove()
    assert not folder.path.exists()


def test_folder_without_links_is_created_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "symlink", refuse)
    folder = Folder(tmp_path / "exp1")
    folder.create(tmp_path)
    assert folder.trials.is_dir()


def test_database_of_a_network_folder_is_in_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, share = tmp_path / "data", tmp_path / "share"
    monkeypatch.setattr(module, "is_on_network", lambda path: path.is_relative_to(share))
    folder = Folder(share / "exp1")
    folder.create(data)
    assert folder.database == data / "databases" / "exp1" / "nni.sqlite"
    assert folder.lock.parent == folder.database.parent
    assert folder.database.parent.stat().st_mode & 0o777 == 0o700
    assert Folder(share / "exp1").database == folder.database, "a later reader finds it by the pointer"
    folder.remove()
    assert not folder.path.exists() and not (data / "databases" / "exp1").exists()


def test_remove_keeps_foreign_files(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "exp1")
    folder.create(tmp_path)
    (folder.path / "notes.txt").write_text("mine")
    folder.remove()
    assert [path.name for path in folder.path.iterdir()] == ["notes.txt"]
    (folder.path / "notes.txt").unlink()
    folder.remove()
    assert not folder.path.exists()


@pytest.mark.parametrize("content", ["", "[", "[" * 60_000, "7", "{}", '{"database": 7}', None])
def test_invalid_pointer_is_named_and_affects_one_experiment(tmp_path: Path, content: str | None) -> None:
    folder = Folder(tmp_path / "exp1")
    folder.create(tmp_path)
    pointer = folder.path / "db" / "pointer.json"
    if content is None:
        os.mkfifo(pointer)
    else:
        pointer.write_text(content)
    with pytest.raises(StoreCorrupt, match=r"pointer\.json does not say"):
        folder.require_database()
    assert folder.remove() == []
    assert not folder.path.exists()


def test_foreign_pointer_target_is_not_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "exp1")
    folder.create(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    (folder.path / "db" / "pointer.json").write_text(json.dumps({"database": str(home / "nni.sqlite")}))
    assert folder.remove() == []
    assert home.exists() and not folder.path.exists()


def test_links_that_trials_put_in_place_of_our_folders_go_alone(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "exp1")
    folder.create(tmp_path)
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    folder.trials.rmdir()
    folder.trials.symlink_to(kept)
    assert folder.remove() == []
    assert (kept / "file").exists() and not folder.path.exists()


def test_remove_deletes_folders_named_after_services(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "exp1")
    folder.create(tmp_path)
    for name in ("scripted", "local-2"):
        (folder.path / name).mkdir()
    assert folder.remove() == [] and not folder.path.exists()
    folder.create(tmp_path)
    (folder.path / "foreign").mkdir()
    folder.remove()
    assert [path.name for path in folder.path.iterdir()] == ["foreign"]


def test_missing_folders_are_made_and_their_loss_is_said(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "exp1")
    folder.create(tmp_path)
    assert folder.make_missing() == []
    for path in (folder.log, folder.trials, folder.checkpoint):
        path.rmdir()
    said = folder.make_missing()
    assert [str(path) in sentence for path, sentence in zip(_written_into(folder), said, strict=True)] == [True] * 3
    assert {path.stat().st_mode & 0o777 for path in _written_into(folder)} == {0o700}


def _written_into(folder: Folder) -> tuple[Path, ...]:
    return folder.log, folder.trials, folder.checkpoint


def test_empty_database_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "exp1")
    folder.create(tmp_path)
    folder.database.touch()
    with pytest.raises(StoreCorrupt, match=rf"the database {folder.database} is empty \(0 bytes\); restore it"):
        folder.require_database()
