"""Entry points of other packages: found as soon as they are installed, and not read again and again."""

from __future__ import annotations

import os
import time
from importlib import metadata
from pathlib import Path

import pytest

from nni_manager.domain import plug_ins
from tests.installed import announce

pytestmark = pytest.mark.unit

GROUP = "nni_manager.tests"


def names() -> list[str]:
    return [point.name for point in plug_ins.entry_points(GROUP)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only one of the path."""
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr(plug_ins, "_read", {})
    return tmp_path


def settle(folder: Path) -> None:
    """Its last change was a while ago."""
    os.utime(folder, (time.time() - 60, time.time() - 60))


def test_package_installed_meanwhile_is_found(folder: Path) -> None:
    settle(folder)
    assert names() == names() == []
    announce(folder, "first", GROUP, {"one": "builtins:dict"})
    assert names() == ["one"]
    settle(folder)
    assert names() == ["one"]
    (folder / "first-1.dist-info").rename(folder / "gone")
    assert names() == []


def test_package_that_is_being_installed_is_found_in_the_end(folder: Path) -> None:
    (folder / "first-1.dist-info").mkdir()
    assert names() == []
    announce(folder, "first", GROUP, {"one": "builtins:dict"})
    assert names() == ["one"]


def test_another_path_is_another_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(folder, "first", GROUP, {"one": "builtins:dict"})
    settle(folder)
    assert names() == ["one"]
    monkeypatch.setattr("sys.path", ["/no/such/folder", ""])
    assert names() == []


def test_unchanged_folders_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(folder, "first", GROUP, {"one": "builtins:dict"})
    settle(folder)
    reads: list[str] = []
    read = metadata.entry_points
    monkeypatch.setattr(metadata, "entry_points", lambda group: reads.append(group) or read(group=group))
    assert names() == names() == ["one"]
    assert reads == [GROUP]
