"""Nothing is sent to a socket that may be another user's."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nni_manager.client import address
from tests.other_user import NOBODY, command

pytestmark = pytest.mark.unit


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: a socket's path ends at 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="nni-") as folder:
        yield Path(folder)


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield listener


def _connect(path: Path, owner: int = os.geteuid()) -> int:
    with address.connect_to(str(path), owner, 5) as connected:
        return address.peer_uid(connected)


def test_our_own_daemon_is_reached(folder: Path) -> None:
    with _listening(folder / "s"):
        assert _connect(folder / "s") == os.geteuid()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_folder_writable_by_others_is_refused(folder: Path, mode: int) -> None:
    with _listening(folder / "s"):
        folder.chmod(mode)
        with pytest.raises(PermissionError, match="that only user"):
            _connect(folder / "s")


def test_a_link_is_refused(folder: Path) -> None:
    (folder / "real").mkdir(mode=0o700)
    (folder / "link").symlink_to(folder / "real")
    with _listening(folder / "real" / "s"):
        (folder / "s").symlink_to(folder / "real" / "s")
        for path in (folder / "s", folder / "link" / "s"):
            with pytest.raises(PermissionError):
                _connect(path)


def test_another_users_files_are_refused(folder: Path) -> None:
    with _listening(folder / "s"), pytest.raises(PermissionError):
        _connect(folder / "s", owner=os.geteuid() + 1)


@pytest.mark.machines
def test_another_user_behind_our_own_file_is_refused(folder: Path) -> None:
    """A process of another user behind correct files, as when they were replaced after the check."""
    folder.chmod(0o777)
    program = """
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
connected = listener.accept()[0]
sys.stdout.write(repr(connected.recv(100)))
"""
    with subprocess.Popen(command(NOBODY, program, str(folder / "s")), stdout=subprocess.PIPE, text=True) as fake:
        assert fake.stdout is not None and fake.stdout.readline() == "ready\n"
        folder.chmod(0o700)
        os.chown(folder / "s", os.geteuid(), -1)
        with pytest.raises(PermissionError, match=f"belongs to user {NOBODY}"):
            _connect(folder / "s")
        assert fake.stdout.read() == "b''"
