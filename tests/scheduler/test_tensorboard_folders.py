"""Folders of links for TensorBoards: nothing but what the manager made goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.scheduler.tensorboard import folders
from nni_manager.scheduler.tensorboard.folders import TrialLogs

pytestmark = pytest.mark.unit


def made(data: Path) -> Path:
    folder = data / folders.FOLDER / folders.new_id()
    logs = TrialLogs(trial_id="abcde", number=3, path=data / "experiment" / "tensorboard", is_here=True)
    folders.make_links(folder, [logs])
    return folder


def test_leftover_link_folders_are_removed_and_logs_stay(tmp_path: Path) -> None:
    logs = tmp_path / "experiment" / "tensorboard"
    logs.mkdir(parents=True)
    (logs / "events").write_text("x")
    folder = made(tmp_path)
    folders.clear_links(tmp_path)
    assert not folder.exists() and (logs / "events").read_text() == "x"


@pytest.mark.parametrize("name", ["tensorboard/events", "tensorboard/0a1b2c/events", ".tensorboards/0a1b2c/events"])
def test_files_of_users_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("x")
    folders.clear_links(tmp_path)
    assert (tmp_path / name).read_text() == "x"


def test_folders_with_other_names_stay(tmp_path: Path) -> None:
    folder = made(tmp_path)
    other = folder.rename(folder.with_name("notes"))
    folders.clear_links(tmp_path)
    assert len(list(other.iterdir())) == 1


def test_link_to_a_folder_of_links_stays(tmp_path: Path) -> None:
    folder = made(tmp_path)
    elsewhere = folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(elsewhere)
    folders.clear_links(tmp_path)
    assert len(list(elsewhere.iterdir())) == 1
