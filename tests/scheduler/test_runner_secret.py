"""The secret behind the tokens of runners is whole, and this user's alone."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nni_manager.scheduler.turns import runner_secret
from nni_manager.scheduler.turns.trial_listener import RunnerTokens

pytestmark = pytest.mark.unit


def _file(folder: Path) -> Path:
    return folder / "runner-secret"


def _guessed(folder: Path, secret: bytes) -> bool:
    """Whether the tokens of the data directory are those of a secret that everybody knows."""
    return RunnerTokens.of(folder).token("job") == RunnerTokens(secret).token("job")


def test_secret_is_kept(tmp_path: Path) -> None:
    token = RunnerTokens.of(tmp_path).token("job")
    assert RunnerTokens.of(tmp_path).token("job") == token
    assert _file(tmp_path).stat().st_mode & 0o777 == 0o600 and len(_file(tmp_path).read_bytes()) == 32
    assert os.listdir(tmp_path) == ["runner-secret"]


@pytest.mark.parametrize("left", [b"", b"short", b"x" * 31, b"x" * 33])
def test_secret_of_another_length_is_replaced(tmp_path: Path, left: bytes) -> None:
    _file(tmp_path).write_bytes(left)
    _file(tmp_path).chmod(0o600)
    assert not _guessed(tmp_path, left)
    assert len(_file(tmp_path).read_bytes()) == 32


def test_full_disk_leaves_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            RunnerTokens.of(tmp_path)
    assert not _file(tmp_path).exists()
    assert not _guessed(tmp_path, b"")


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:5]))
    RunnerTokens.of(tmp_path)
    assert len(_file(tmp_path).read_bytes()) == 32


def test_secret_that_all_users_could_read_is_replaced(tmp_path: Path) -> None:
    _file(tmp_path).write_bytes(b"k" * 32)
    _file(tmp_path).chmod(0o644)
    assert not _guessed(tmp_path, b"k" * 32)
    assert _file(tmp_path).stat().st_mode & 0o777 == 0o600


def test_group_access_is_removed_and_tokens_stay_valid(tmp_path: Path) -> None:
    token = RunnerTokens.of(tmp_path).token("job")
    _file(tmp_path).chmod(0o660)
    assert RunnerTokens.of(tmp_path).token("job") == token
    assert _file(tmp_path).stat().st_mode & 0o777 == 0o600


def test_secret_is_kept_without_file_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = RunnerTokens.of(tmp_path).token("job")
    _file(tmp_path).chmod(0o777)
    monkeypatch.setattr(Path, "chmod", lambda *_: None)
    assert RunnerTokens.of(tmp_path).token("job") == token


def test_secret_of_another_user_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _file(tmp_path).write_bytes(b"k" * 32)
    _file(tmp_path).chmod(0o600)
    monkeypatch.setattr(runner_secret, "is_ours", lambda folder, owner: owner == os.geteuid() + 1)
    assert not _guessed(tmp_path, b"k" * 32)


def test_secret_is_kept_if_storage_maps_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = RunnerTokens.of(tmp_path).token("job")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert RunnerTokens.of(tmp_path).token("job") == token


def test_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"k" * 32)
    _file(tmp_path).symlink_to("elsewhere")
    assert not _guessed(tmp_path, b"k" * 32)
    assert not _file(tmp_path).is_symlink() and (tmp_path / "elsewhere").read_bytes() == b"k" * 32
