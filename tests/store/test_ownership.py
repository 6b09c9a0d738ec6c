"""One owner at a time; the lock dies with its holder."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nni_manager.app import build
from nni_manager.domain.errors import AlreadyOwned, StoreUnavailable
from nni_manager.store import folder
from nni_manager.store.folder import Ownership

_HOLDER = """
import sys, signal
from pathlib import Path
from nni_manager.store.folder import Ownership
held = Ownership(Path(sys.argv[1]), "the folder")
print("held", flush=True)
signal.pause()
"""


@pytest.mark.unit
def test_the_second_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "owner.lock"
    first = Ownership(path, "the folder")
    with pytest.raises(AlreadyOwned, match=rf"^the folder is in use by process {os.getpid()}$"):
        Ownership(path, "the folder")
    first.release()
    first.release()
    Ownership(path, "the folder").release()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.unit
def test_lock_file_holds_only_the_present_process_id(tmp_path: Path) -> None:
    path = tmp_path / "owner.lock"
    path.write_text("12345678901234567890\n")
    held = Ownership(path, "the folder")
    assert path.read_text() == f"{os.getpid()}\n"
    held.release()


@pytest.mark.unit
async def test_lock_on_a_full_disk_is_refused_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: int, _text: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folder.os, "write", refuse)
        with pytest.raises(StoreUnavailable, match=r"daemon\.lock cannot be written \(No space left on device\)"):
            async with build.ownership(tmp_path):
                pass
    async with build.ownership(tmp_path):  # the lock was released
        pass


@pytest.mark.acceptance
def test_another_process_is_named_and_its_death_ends_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "owner.lock"
    other = subprocess.Popen([sys.executable, "-c", _HOLDER, str(path)], stdout=subprocess.PIPE)
    assert other.stdout is not None and other.stdout.readline() == b"held\n"
    with pytest.raises(AlreadyOwned, match=f"in use by process {other.pid}$"):
        Ownership(path, "the folder")
    other.send_signal(signal.SIGKILL)
    other.wait()
    other.stdout.close()
    Ownership(path, "the folder").release()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "owner.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError):
        Ownership(tmp_path / "owner.lock", "it")
    assert (tmp_path / "precious").read_text() == "precious"
