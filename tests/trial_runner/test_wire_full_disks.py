"""Full inode tables: what is said of them, and by whom."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from nni_manager.app.doctor import data_directory
from nni_manager.scheduler.disk import Disk
from nni_manager.store.connection import trouble
from trial_runner import protocol
from trial_runner.keeper.serving.requests import system_refusal
from trial_runner.wire import full_disks

pytestmark = pytest.mark.unit

_FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
_WORDS = "has no free inodes"


@pytest.fixture
def no_inodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file system has room and takes no other file."""
    found = list(os.statvfs("/"))
    # blocks and free ones, files and free ones, in the order of `os.statvfs_result`
    found[2:8] = [1 << 30, 1 << 29, 1 << 29, 1000, 0, 0]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(found))


@pytest.mark.usefixtures("no_inodes")
async def test_full_inode_table_is_said_wherever_a_full_disk_is(tmp_path: Path) -> None:
    assert _WORDS in full_disks.reason(_FULL, tmp_path / "not" / "there")
    assert _WORDS in (await Disk(tmp_path, 0).room()).sentence
    assert _WORDS in data_directory._room(tmp_path, 0).sentence
    refusal = system_refusal(_FULL, "Starting job x")
    assert (refusal.kind, _WORDS in refusal.message) == (protocol.UNAVAILABLE, True)
    for code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = code
        assert _WORDS in trouble(tmp_path / "x.sqlite", error)
    assert "permission denied" in full_disks.reason(OSError(errno.EACCES, "permission denied"), tmp_path)


async def test_free_inodes_leave_other_reasons(tmp_path: Path) -> None:
    assert full_disks.reason(_FULL, tmp_path) == _FULL.strerror
    assert not (await Disk(tmp_path, 0).room()).sentence
