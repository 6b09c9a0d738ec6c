"""`nni-manager doctor`: what it prints, and its exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nni_manager.app.doctor import examination
from nni_manager.app.doctor.finding import CheckFinding, failure, note, ok, warning
from nni_manager.cli.main import nni_manager

pytestmark = pytest.mark.unit

GOOD = [ok("python", "it is new enough"), ok("disk", "1.0 GiB are free")]
LOW = warning("disk", "0.5 GiB are free", "make room")
BROKEN = failure("keeper", "it cannot\nbe started", "see why")


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command with these findings."""

    def run(findings: list[CheckFinding], *words: str) -> Result:
        def examine(data_dir: Path, environment: Any, *, config: Path | None) -> Iterator[CheckFinding]:
            asked.append((data_dir, config))
            yield from findings

        monkeypatch.setattr(examination, "examine", examine)
        return CliRunner().invoke(nni_manager, ["doctor", *words])

    return run


#: (data directory, config) of every look.
asked: list[tuple[Path, Path | None]] = []


def test_all_is_well(report: Callable[..., Result]) -> None:
    result = report(GOOD)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "OK    python          it is new enough",
        "OK    disk            1.0 GiB are free",
        "All 2 checks passed.",
    ]


def test_missing_extra_is_a_note_and_exits_with_0(report: Callable[..., Result]) -> None:
    result = report([*GOOD, note("tuner", "GPTuner needs scikit-learn", "pip install 'nni-manager[gp]'")])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-2:] == [
        "NOTE  tuner           GPTuner needs scikit-learn: pip install 'nni-manager[gp]'",
        "All 3 checks passed, 1 with a note.",
    ]


def test_warning_is_not_a_failure(report: Callable[..., Result]) -> None:
    result = report([*GOOD, LOW])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-2:] == [
        "WARN  disk            0.5 GiB are free: make room",
        "All 3 checks passed, 1 with a warning.",
    ]


def test_a_failure_is_one_line_and_exit_code_1(report: Callable[..., Result]) -> None:
    result = report([*GOOD, LOW, BROKEN])
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-2:] == [
        "FAIL  keeper          it cannot be started: see why",
        "1 of 4 checks failed.",
    ]


def test_json(report: Callable[..., Result]) -> None:
    result = report([LOW, BROKEN], "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)[0] == {
        "verdict": "WARN",
        "check": "disk",
        "sentence": "0.5 GiB are free",
        "advice": "make room",
    }


def test_data_directory_and_config_options(report: Callable[..., Result], tmp_path: Path) -> None:
    report(GOOD, "--data-dir", str(tmp_path), "--config", "some.yml")
    assert asked[-1] == (tmp_path, Path("some.yml"))
