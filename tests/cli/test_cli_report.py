"""`nnictl experiment report` and `nnictl tensorboard`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from fake_manager import FakeManager, state, trial

pytestmark = pytest.mark.unit

Run = Callable[..., Result]


@pytest.fixture
def known(manager: FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeManager:
    monkeypatch.chdir(tmp_path)
    manager.add(state("abc", "STOPPED", optimizeMode="minimize"))
    manager.trials_of["abc"] = [trial("aaaaa", 0, value=1.0), trial("bbbbb", 1, value=2.0)]
    return manager


def test_report_is_a_file_with_the_id(nnictl: Run, known: FakeManager, tmp_path: Path) -> None:
    found = nnictl("experiment", "report", "abc")
    assert found.exit_code == 0 and "abc-report.html (17 B)" in found.stdout
    assert (tmp_path / "abc-report.html").read_text() == "<!doctype html>é"


def test_report_is_written_to_given_path(nnictl: Run, known: FakeManager, tmp_path: Path) -> None:
    assert nnictl("experiment", "report", "abc", "-o", str(tmp_path / "r.html")).exit_code == 0
    assert (tmp_path / "r.html").read_text() == "<!doctype html>é"
    refused = nnictl("experiment", "report", "abc", "-o", str(tmp_path / "gone" / "r.html"))
    assert refused.exit_code == 1 and "--output" in refused.stderr


def test_tensorboard_shows_the_named_trials(nnictl: Run, known: FakeManager) -> None:
    found = nnictl("tensorboard", "start", "abc", "--trial_id", "1", "-T", "aaaaa", "--port", "6100")
    assert found.exit_code == 0, found.output
    assert known.calls == [("tensorboard", "abc", ["bbbbb", "aaaaa"], 6100)]
    assert "http://127.0.0.1:6100/" in found.stdout and "ssh" not in found.stdout


def test_tensorboard_shows_the_best_where_none_is_named(nnictl: Run, known: FakeManager, monkeypatch: Any) -> None:
    monkeypatch.setattr(FakeManager, "is_here", False)
    found = nnictl("tensorboard", "start", "abc")
    assert known.calls[0][2] == ["aaaaa", "bbbbb"] and "ssh -L 6006" in found.stdout


def test_tensorboards_are_stopped(nnictl: Run, known: FakeManager) -> None:
    assert "No TensorBoard is running" in nnictl("tensorboard", "stop", "abc").stdout
    nnictl("tensorboard", "start", "abc")
    assert "Stopped 1 TensorBoards of experiment abc" in nnictl("tensorboard", "stop", "abc").stdout


def test_experiment_without_trials_is_reported(nnictl: Run, known: FakeManager) -> None:
    known.trials_of.clear()
    found = nnictl("tensorboard", "start", "abc")
    assert found.exit_code == 1 and "no trials yet" in found.stderr
