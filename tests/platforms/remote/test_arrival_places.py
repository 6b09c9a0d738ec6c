"""The place of the manager that a machine's folder is for: which others are let in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trial_runner.keeper import arrival

pytestmark = pytest.mark.unit

_OURS: dict[str, Any] = {
    "host": "here", "machine": "a1", "directory": "/data", "inode": 7, "claimed_ms": 0,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """It is ours."""
    _come(monkeypatch)
    arrival.note_manager(str(tmp_path))
    return tmp_path


def _come(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """A manager at another place."""
    monkeypatch.setattr(arrival, "SETTINGS", {"manager": {**_OURS, **fields}})


@pytest.mark.parametrize(
    "fields",
    [{}, {"directory": "/moved"}, {"inode": 8}, {"host": "renamed"}, {"claimed_ms": 5, "inode": 8, "machine": "b2"}],
    ids=["restarted", "moved on its machine", "from a backup", "renamed", "moved, as somebody said"],
)
def test_the_same_manager_is_let_in(folder: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    _come(monkeypatch, **fields)
    assert arrival.holder(str(folder)) == ""


@pytest.mark.parametrize(
    "fields",
    [{"machine": "b2"}, {"directory": "/copy", "inode": 8}, {"machine": "", "inode": 8}],
    ids=["on another machine", "elsewhere on the same one", "in a container that has no name"],
)
def test_a_copy_is_not(folder: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    _come(monkeypatch, **fields)
    assert arrival.holder(str(folder)) == "/data on here"


def test_a_container_that_is_made_anew_over_the_same_volume_is_let_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _come(monkeypatch, machine="", claimed_ms=1)
    arrival.note_manager(str(folder))
    _come(monkeypatch, machine="", host="another", claimed_ms=1)
    assert arrival.holder(str(folder)) == ""


def test_who_said_it_last_has_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _come(monkeypatch, machine="b2", host="there", claimed_ms=5)
    arrival.note_manager(str(folder))
    _come(monkeypatch)
    assert arrival.holder(str(folder)) == "/data on there"
    _come(monkeypatch, claimed_ms=6)
    assert arrival.holder(str(folder)) == ""


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", json.dumps({**_OURS, "claimed_ms": "soon"})])
def test_a_place_that_cannot_be_read_keeps_nobody_out(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (folder / "manager.json").write_text(text)
    _come(monkeypatch, machine="b2")
    assert arrival.holder(str(folder)) == ""
