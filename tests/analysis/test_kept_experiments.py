"""Columns in memory: limited in number and size, and read again when the database has other content."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.analysis import worker
from nni_manager.analysis.worker import KeptExperiments
from nni_manager.domain.errors import StoreUnavailable
from tests.analysis.filled import Filled, filled

pytestmark = pytest.mark.unit


def read(kept: KeptExperiments, path: Path, revision: str = "1") -> int:
    with kept.read(str(path), revision, parameters=True) as (trials, _):
        return len(trials)


def test_the_least_recently_asked_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_MOST", 2)
    kept, paths = KeptExperiments(), []
    for name in "abc":
        (tmp_path / name).mkdir()
        with filled(tmp_path / name) as experiment:
            paths.append(experiment.path)
    for path in (paths[0], paths[1], paths[0], paths[2]):
        read(kept, path)
    assert list(kept._kept) == [str(paths[0]), str(paths[2])]


def test_large_lists_are_not_kept_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_MOST_BYTES", 1)
    kept = KeptExperiments()
    for name in "ab":
        (tmp_path / name).mkdir()
        with filled(tmp_path / name) as experiment:
            experiment.add(final=1.0)
            assert read(kept, experiment.path) == 1
    assert list(kept._kept) == [str(experiment.path)]


def test_replaced_content_is_read_again(experiment: Filled) -> None:
    for _ in range(3):
        experiment.add(final=1.0)
    assert experiment.asked("trials", "p.rate=0..1")["total"] == 3
    for table in ("metrics", "outboxes", "attempts", "trials"):
        experiment.connection.execute(f"DELETE FROM {table}")
    experiment.connection.execute("UPDATE experiment SET created_ms = 5, ended_trials = 0, next_sequence_id = 0")
    experiment.count = 0
    experiment.add({"units": 3}, final=2.0)
    answer = experiment.asked("trials", "")
    assert answer["total"] == 1 and answer["rows"][0]["parameters"] == {"units": 3} and answer["rows"][0]["rank"] == 1


def test_trials_newer_than_revision_are_read_too(experiment: Filled) -> None:
    """Two questions of one revision, between which the experiment goes on."""
    kept = KeptExperiments()
    experiment.add(final=1.0)
    with kept.read(str(experiment.path), "1", parameters=False) as (trials, _):
        assert len(trials) == 1
    experiment.add({"rate": 0.2}, final=2.0)
    with kept.read(str(experiment.path), "1", parameters=True) as (trials, _):
        assert len(trials) == 2


def test_missing_database_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"gone\.sqlite"):
        read(KeptExperiments(), tmp_path / "gone.sqlite")
