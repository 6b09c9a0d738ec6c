"""Which folders lie on a disk that other machines write too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nni_manager.store import folder
from nni_manager.store.folder import is_on_network

pytestmark = pytest.mark.unit


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(folder, "_TABLE", tmp_path / "mounts")
    return tmp_path / "mounts"


def write(table: Path, *partitions: tuple[str, str]) -> None:
    rows = [f"device {point} {kind} rw,relatime 0 0\n" for point, kind in (("/", "ext4"), *partitions)]
    table.write_text("".join(rows))


@pytest.mark.parametrize(
    ("path", "partitions", "on_network"),
    [
        ("/share/x", [("/share", "nfs")], True),
        ("/share", [("/share", "cifs")], True),
        ("/shared/x", [("/share", "nfs")], False),
        ("/share/x/y", [("/share", "nfs"), ("/share/x", "ext4")], False),
        ("/share/x/y", [("/share/x", "ext4"), ("/share", "nfs")], False),
        ("/data/x", [("/data", "autofs"), ("/data", "nfs4")], True),  # mounted over: the last one counts
        ("/data/x", [("/data", "tmpfs"), ("/elsewhere", "nfs4")], False),
        ("/data/x", [("/data", "fuse.sshfs")], True),
        ("/my data/x", [(r"/my\040data", "nfs")], True),
    ],
)
def test_is_on_network(
    path: str, partitions: list[tuple[str, str]], on_network: bool, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table, *partitions)
    monkeypatch.setattr(folder.os.path, "realpath", str)
    assert is_on_network(Path(path)) is on_network


def test_a_link_to_a_network_is_on_the_network(table: Path, tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "share")
    write(table, (str(tmp_path / "share"), "nfs"))
    assert is_on_network(tmp_path / "link")
    assert not is_on_network(tmp_path)


def test_unreadable_mount_table_means_no_network_folder(table: Path) -> None:
    assert not is_on_network(table.parent)


def test_this_machines_own_table_is_understood() -> None:
    assert ("/proc", "proc") in folder._mounted() and not is_on_network(Path(os.sep, "proc"))
