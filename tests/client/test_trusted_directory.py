"""A data directory that another user has made or could change: nothing in it is obeyed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from nni_manager.client import data_directory
from nni_manager.client.caller import resolve_data_directory
from nni_manager.client.data_directory import INSECURE_VARIABLE, require_trusted
from nni_manager.config import settings
from nni_manager.domain.errors import InvalidInput

pytestmark = pytest.mark.unit

_OTHER = 4711


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a path another user's, as far as the looked-at status says."""
    taken: set[str] = set()
    real = Path.stat

    def seen(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        status = real(path, follow_symlinks=follow_symlinks)
        name = os.path.realpath(path) if follow_symlinks else str(path)
        return os.stat_result((*status[:4], _OTHER, *status[5:])) if name in taken else status

    monkeypatch.setattr(Path, "stat", seen)
    monkeypatch.setattr(data_directory, "is_ours", lambda _, owner: owner == os.geteuid())
    return lambda path: taken.add(str(path))


def test_missing_directory_is_trusted(tmp_path: Path) -> None:
    require_trusted(tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o770])
def test_own_directory_is_made_private(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    require_trusted(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_directory_of_another_user_is_refused(tmp_path: Path, foreign: Callable[[Path], None]) -> None:
    foreign(tmp_path)
    for use in (
        lambda: require_trusted(tmp_path),
        lambda: resolve_data_directory(str(tmp_path)),
        lambda: settings.load({"data_dir": str(tmp_path)}, {}),
    ):
        with pytest.raises(InvalidInput, match=f"{tmp_path} belongs to the user with id {_OTHER}.*--insecure-data-dir"):
            use()


@pytest.mark.parametrize("name", ["settings.yml", "algorithms.json", "index.sqlite", "identity", "keeper"])
@pytest.mark.parametrize("is_link", [False, True])
def test_file_of_another_user_is_refused(
    tmp_path: Path, foreign: Callable[[Path], None], name: str, *, is_link: bool
) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    data.mkdir(0o700)
    elsewhere.write_text("token: 0123456789abcdef0123\n")
    if is_link:
        (data / name).symlink_to(elsewhere)
    else:
        (data / name).write_text("")
    require_trusted(data)
    foreign(elsewhere if is_link else data / name)
    with pytest.raises(InvalidInput, match=f"{data / name} belongs to the user with id {_OTHER}"):
        require_trusted(data)


def test_directory_of_root_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: _OTHER)
    tmp_path.chmod(0o755)
    require_trusted(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_world_writable_directory_without_modes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr(Path, "chmod", lambda *_: None)
    with pytest.raises(InvalidInput, match="every user can change"):
        require_trusted(tmp_path)
    os.chmod(tmp_path, 0o1777)  # others can remove only what is theirs
    require_trusted(tmp_path)


def test_variable_accepts_a_foreign_directory(
    tmp_path: Path, foreign: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign(tmp_path)
    monkeypatch.setenv(INSECURE_VARIABLE, "1")
    assert resolve_data_directory(str(tmp_path)) == tmp_path
