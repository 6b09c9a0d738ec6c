"""What lies where, also when the folder is on a disk that other machines write too."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from nni_manager.store import folder as module
from nni_manager.store.folder import Folder, is_on_network

pytestmark = pytest.mark.unit

Partition = namedtuple("Partition", "mountpoint fstype")


def mounts(monkeypatch: pytest.MonkeyPatch, *partitions: tuple[str, str]) -> None:
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: [Partition(*p) for p in (("/", "ext4"), *partitions)])


def test_a_folder_is_private_and_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts(monkeypatch)
    folder = Folder(tmp_path / "made" / "exp1")
    folder.create(tmp_path)
    assert {path.name for path in folder.path.iterdir()} == {"db", "log", "trials", "checkpoint"}
    assert {path.stat().st_mode & 0o777 for path in (folder.path, *folder.path.iterdir())} == {0o700}
    assert folder.database == folder.path / "db" / "nni.sqlite"
    assert folder.lock == folder.path / "db" / "owner.lock"
    assert folder.attempt("abcde-2") == folder.path / "trials" / "abcde-2"
    with pytest.raises(OSError):
        folder.create(tmp_path)


def test_on_a_network_the_database_lies_in_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, share = tmp_path / "data", tmp_path / "share"
    mounts(monkeypatch, (str(share), "nfs4"))
    folder = Folder(share / "exp1")
    folder.create(data)
    assert folder.database == data / "databases" / "exp1" / "nni.sqlite"
    assert folder.lock.parent == folder.database.parent
    assert folder.database.parent.stat().st_mode & 0o777 == 0o700
    assert Folder(share / "exp1").database == folder.database, "the pointer is read by whoever comes later"
    folder.remove()
    assert not folder.path.exists() and not (data / "databases" / "exp1").exists()


def test_only_what_is_ours_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts(monkeypatch)
    folder = Folder(tmp_path / "exp1")
    folder.create(tmp_path)
    (folder.path / "notes.txt").write_text("mine")
    folder.remove()
    assert [path.name for path in folder.path.iterdir()] == ["notes.txt"]
    (folder.path / "notes.txt").unlink()
    folder.remove()
    assert not folder.path.exists()


@pytest.mark.parametrize(("path", "partitions", "on_network"), [
    ("/share/x", [("/share", "nfs")], True),
    ("/share", [("/share", "cifs")], True),
    ("/shared/x", [("/share", "nfs")], False),
    ("/share/x/y", [("/share", "nfs"), ("/share/x", "ext4")], False),
    ("/share/x/y", [("/share/x", "ext4"), ("/share", "nfs")], False),
    ("/data/x", [("/data", "autofs"), ("/data", "nfs4")], True),  # mounted over: the last one counts
    ("/data/x", [("/data", "tmpfs"), ("/elsewhere", "nfs4")], False),
    ("/data/x", [("/data", "fuse.sshfs")], True),
])  # fmt: skip
def test_is_on_network(
    path: str, partitions: list[tuple[str, str]], on_network: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts(monkeypatch, *partitions)
    monkeypatch.setattr(module.os.path, "realpath", lambda path: str(path))
    assert is_on_network(Path(path)) is on_network


def test_a_link_to_a_network_is_on_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "share").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "share")
    mounts(monkeypatch, (str(tmp_path / "share"), "nfs"))
    assert is_on_network(tmp_path / "link")
    assert not is_on_network(tmp_path)
