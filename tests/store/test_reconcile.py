"""How an experiment is listed where index and folder differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store.folder import Folder
from nni_manager.store.index.index import Entry, Found
from nni_manager.store.index.reconcile import decide

pytestmark = pytest.mark.unit

STOPPED = Entry(
    id="exp1",
    folder=Folder(Path("/data/exp1")),
    name=None,
    platform="local",
    status=ExperimentStatus.STOPPED,
    created_ms=1,
    ended_ms=100,
    is_open=False,
)
RUNNING = replace(STOPPED, status=ExperimentStatus.RUNNING, ended_ms=None, is_open=True)


def found(entry: Entry, counted_ms: int = 50) -> Found:
    return Found(entry=entry, stored=entry.folder, owner="ours", counted_ms=counted_ms)


@pytest.mark.parametrize(
    ("is_ours", "has_jobs", "opens"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_unknown_running_folder_opens_if_ours_with_jobs(is_ours: bool, has_jobs: bool, opens: bool) -> None:
    entry = decide(None, found(RUNNING), is_ours=is_ours, has_jobs=has_jobs)
    assert entry is not None and (entry.is_open, entry.is_found) == (opens, not opens)
    assert entry.status is (ExperimentStatus.RUNNING if opens else ExperimentStatus.STOPPED)
    assert entry.trouble.startswith("found in /data/exp1") is not opens


@pytest.mark.parametrize(
    ("counted_ms", "is_ours", "opens"), [(101, True, True), (100, True, False), (101, False, False)]
)
def test_newer_of_stop_and_folder_counts(counted_ms: int, is_ours: bool, opens: bool) -> None:
    entry = decide(STOPPED, found(RUNNING, counted_ms), is_ours=is_ours, has_jobs=False)
    assert (entry is not None and entry.is_open) == opens


def test_found_folder_stays_closed_at_the_next_start() -> None:
    listed = decide(None, found(RUNNING), is_ours=True, has_jobs=False)
    assert decide(listed, found(RUNNING), is_ours=True, has_jobs=True) is None


def test_entry_follows_a_moved_folder(tmp_path: Path) -> None:
    there = Folder(tmp_path / "renamed")
    entry = decide(RUNNING, found(replace(RUNNING, folder=there)), is_ours=True, has_jobs=False)
    assert entry == replace(RUNNING, folder=there)


def test_second_copy_of_a_listed_experiment_changes_nothing(tmp_path: Path) -> None:
    here = Folder(tmp_path / "exp1")
    here.create(tmp_path)
    here.database.write_text("is there")
    listed = replace(STOPPED, folder=here)
    copy = found(replace(RUNNING, folder=Folder(tmp_path / "copy")), counted_ms=999)
    assert decide(listed, copy, is_ours=True, has_jobs=True) is None


def test_unreadable_folder_with_jobs_is_opened_to_be_held() -> None:
    unreadable = replace(STOPPED, platform="", note="its folder cannot be read")
    assert decide(STOPPED, found(unreadable), is_ours=True, has_jobs=False) == replace(STOPPED, note=unreadable.note)
    for known in (None, STOPPED):
        entry = decide(known, found(unreadable), is_ours=True, has_jobs=True)
        assert entry is not None and entry.is_open
    assert decide(RUNNING, found(unreadable), is_ours=True, has_jobs=True) is None


def test_readable_again_clears_the_sentence() -> None:
    listed = replace(STOPPED, note="its folder cannot be read")
    assert decide(listed, found(STOPPED), is_ours=True, has_jobs=False) == STOPPED
