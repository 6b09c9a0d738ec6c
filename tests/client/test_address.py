"""Finding a daemon's address."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nni_manager.client.address import POINTER_FILE, Address, Pointer, find, read_pointer
from nni_manager.client.data_directory import LOCK, open_lock
from trial_runner.wire.descriptors import try_lock

pytestmark = pytest.mark.acceptance


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: a socket's path ends at 107 bytes."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """While a daemon holds the folder's lock."""
    with open_lock(folder / LOCK) as lock:
        assert try_lock(lock.fileno())
        yield


def point(folder: Path, path: object) -> None:
    (folder / POINTER_FILE).write_text(json.dumps({"socket": path, "pid": 7, "version": "1.2.3"}))


def test_a_daemon_that_listens_is_found(folder: Path) -> None:
    path = str(folder / "control.sock")
    point(folder, path)
    with owned(folder):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            assert find(folder) is None  # bound, but not listening
            listener.listen()
            assert find(folder) == Address(socket=path)
        assert find(folder) is None  # the file is still there
    assert read_pointer(folder) == Pointer(socket=path, pid=7, version="1.2.3")


def test_copied_pointer_does_not_find_original_daemon(folder: Path) -> None:
    path = str(folder / "control.sock")
    point(folder, path)
    copy = Path(shutil.copytree(folder, folder / "copy"))
    with owned(folder), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        assert find(folder) is not None and find(copy) is None


@pytest.mark.parametrize("path", ["/nowhere/control.sock", "a\0b", "x" * 200])
def test_dangling_pointer_finds_no_daemon(folder: Path, path: str) -> None:
    point(folder, path)
    assert find(folder) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"socket": "/s", "pid": "x", "version": "1"}', "\ud800"])
def test_broken_pointer_is_ignored(folder: Path, text: str) -> None:
    (folder / POINTER_FILE).write_bytes(text.encode("utf-8", "surrogatepass"))
    assert read_pointer(folder) is None and find(folder) is None


def test_missing_pointer_is_none(folder: Path) -> None:
    assert find(folder) is None and find(folder / "missing") is None
