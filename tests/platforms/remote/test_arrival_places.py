"""The place of the manager that a machine's folder is for: which others are let in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trial_runner.keeper import arrival

pytestmark = pytest.mark.unit

_OURS: dict[str, Any] = {
    "host": "here",
    "machine": "a1",
    "directory": "/data",
    "inode": 7,
    "claimed_ms": 0,
}


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
    ids=["restarted", "moved on its machine", "from a backup", "renamed", "moved, as the user confirmed"],
)
def test_same_manager_is_accepted(folder: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    _come(monkeypatch, **fields)
    assert arrival.holder(str(folder)) == ""


@pytest.mark.parametrize(
    "fields",
    [{"machine": "b2"}, {"directory": "/copy", "inode": 8}, {"machine": "", "inode": 8}],
    ids=["on another machine", "elsewhere on the same one", "in a container that has no name"],
)
def test_copied_manager_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    _come(monkeypatch, **fields)
    assert arrival.holder(str(folder)) == "/data on here"


def test_recreated_container_on_the_same_volume_is_accepted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _come(monkeypatch, machine="", claimed_ms=1)
    arrival.note_manager(str(folder))
    _come(monkeypatch, machine="", host="another", claimed_ms=1)
    assert arrival.holder(str(folder)) == ""


def test_latest_claim_owns_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _come(monkeypatch, machine="b2", host="there", claimed_ms=5)
    arrival.note_manager(str(folder))
    _come(monkeypatch)
    assert arrival.holder(str(folder)) == "/data on there"
    _come(monkeypatch, claimed_ms=6)
    assert arrival.holder(str(folder)) == ""


class Comers:
    """Daemons that come to the folder one after the other; `claimed_ms`: of the place of each that has one."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = str(folder), monkeypatch

    def come(self, run: str, **fields: Any) -> str:
        """What is said to it; it is let in where that is empty."""
        _come(self._monkeypatch, run=run, **fields)
        said = arrival.holder(self._folder)
        if not said:
            arrival.note_manager(self._folder)
        return said


def test_later_of_two_cloned_machines_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comers = Comers(folder, monkeypatch)
    said = [comers.come(run) for run in ("original", "clone", "original", "clone", "original", "clone")]
    assert [bool(words) for words in said] == [False, False, False, True, False, True]
    assert said[-1].startswith("/data on here, which is active at the same time")
    assert comers.come("") == "", "a look tells of no daemon"


def test_daemons_of_a_machine_take_over_from_each_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comers = Comers(folder, monkeypatch)
    for run in (run for number in range(100) for run in [f"run {number}"] * 2):
        assert comers.come(run) == ""
    noted = json.loads((folder / "manager.json").read_text())
    assert (len(noted["earlier"]), noted["refused"]) == (16, [])


def test_restarted_clone_is_refused_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comers = Comers(folder, monkeypatch)
    for run in ("original", "clone", "original"):
        comers.come(run)
    assert [bool(comers.come(run)) for run in ("clone 2", "original", "clone 2", "original")] == [
        False,
        False,
        True,
        False,
    ]


def test_user_decides_between_two_clones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comers = Comers(folder, monkeypatch)
    for run in ("original", "clone", "original"):
        comers.come(run)
    assert comers.come("clone", claimed_ms=5) == ""
    assert comers.come("original") and not comers.come("clone", claimed_ms=5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        *(
            json.dumps({**_OURS, **wrong})
            for wrong in (
                {"claimed_ms": "soon"},
                {"machine": "b2", "run": "x", "earlier": 7, "refused": {"y": 1}},
            )
        ),
    ],
)
def test_unreadable_place_is_accepted(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (folder / "manager.json").write_text(text)
    _come(monkeypatch, machine="b2", run="y")
    assert arrival.holder(str(folder)) == ""
    arrival.note_manager(str(folder))
