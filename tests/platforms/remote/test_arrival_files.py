"""What is put on a machine that others use: folders of ours alone whatever the umask, and a program that is checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nni_manager.machines.ssh import bootstrap
from trial_runner.keeper import arrival as there
from trial_runner.keeper.__main__ import default_socket_path

pytestmark = pytest.mark.unit

_ANOTHER = 65534


class Home:
    """A home folder on a machine, with a umask that lets all users write."""

    def __init__(self, home: Path) -> None:
        self.root = home / ".nni-manager"
        self.program = self.root / "bin" / bootstrap.archive()[0]
        self.folder = self.root / "deep" / "place"

    def has(self) -> bool:
        return there.is_program(str(self.program))

    def arrive(self) -> None:
        archive = None if self.has() else bootstrap.archive()[1]
        there.prepare(str(self.folder), archive, str(self.program))

    def open_to_others(self) -> list[Path]:
        return [path for path in (self.root, *self.root.rglob("*")) if path.lstat().st_mode & 0o077]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setenv("HOME", str(tmp_path))
    settings: dict[str, Any] = {"archive": bootstrap.archive()[0], "tree": bootstrap._tree()}
    monkeypatch.setattr(there, "SETTINGS", settings)
    kept = os.umask(0)
    yield Home(tmp_path)
    os.umask(kept)


def test_uploaded_files_are_private_under_any_umask(home: Home) -> None:
    home.arrive()
    assert home.has() and home.open_to_others() == []
    assert os.umask(0) == 0, "jobs get the user's own"


def test_folders_that_an_earlier_version_left_open_are_closed(home: Home) -> None:
    home.folder.mkdir(parents=True)
    home.program.parent.mkdir()
    home.arrive()
    assert home.open_to_others() == []


@pytest.mark.parametrize("act", ["changed", "added", "removed", "linked", "bytecode"])
def test_a_program_that_was_changed_is_sent_again(home: Home, tmp_path: Path, act: str) -> None:
    home.arrive()
    file = home.program / "trial_runner" / "protocol.py"
    if act == "changed":
        file.write_text("evil = True")
    elif act == "added":
        file.with_name("evil.py").write_text("evil = True")
    elif act == "removed":
        file.unlink()
    elif act == "linked":
        shutil.move(file, tmp_path / "protocol.py")
        file.symlink_to(tmp_path / "protocol.py")
    else:
        file.with_name("__pycache__").mkdir(mode=0o777)
        home.root.chmod(0o755)
    assert not home.has()
    home.arrive()
    assert home.has() and "evil" not in file.read_text() and not file.with_name("evil.py").exists()
    assert [path.name for path in home.program.parent.iterdir()] == [home.program.name]


def test_bytecode_of_our_own_costs_nothing(home: Home) -> None:
    home.arrive()
    folder = home.program / "trial_runner" / "__pycache__"
    folder.mkdir(mode=0o775)
    (folder / "protocol.cpython-311.pyc").write_bytes(b"code")
    assert home.has()


@pytest.mark.machines
def test_bytecode_of_another_user_is_not_run(home: Home) -> None:
    home.arrive()
    folder = home.program / "trial_runner" / "__pycache__"
    folder.mkdir(mode=0o700)
    os.chown(folder, _ANOTHER, _ANOTHER)
    assert not home.has()


@pytest.mark.machines
def test_another_user_s_folder_in_the_place_of_ours_is_refused(home: Home) -> None:
    home.root.mkdir()
    os.chown(home.root, _ANOTHER, _ANOTHER)
    with pytest.raises(OSError, match="it belongs to another user"):
        home.arrive()


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As `/tmp`: all users of the machine may write there."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder) / f"nni-manager-{os.getuid()}"


LONG = "/home/" + "x" * 120


@pytest.mark.parametrize("act", ["link", "open", "file"])
def test_a_socket_is_not_put_where_another_user_could_put_one(temporary: Path, tmp_path: Path, act: str) -> None:
    if act == "link":
        temporary.symlink_to(tmp_path)
    elif act == "open":
        temporary.mkdir()
        temporary.chmod(0o777)
    else:
        temporary.touch(mode=0o600)
    with pytest.raises(PermissionError, match="not a private folder of this user"):
        default_socket_path(LONG)


def test_the_folder_of_a_socket_is_made_private(temporary: Path) -> None:
    assert default_socket_path(LONG) == default_socket_path(LONG)
    assert Path(default_socket_path(LONG)).parent == temporary and temporary.stat().st_mode & 0o777 == 0o700


@pytest.mark.machines
def test_another_user_s_socket_is_not_connected_to(temporary: Path) -> None:
    path = temporary / "x.sock"
    subprocess.run(["/bin/sh", "-c", f"mkdir {temporary} && touch {path}"], user=_ANOTHER, group=_ANOTHER, check=True)
    with pytest.raises(PermissionError, match="not a private folder of this user"):
        default_socket_path(LONG)
