"""Noticing changed outboxes, also where the kernel does not help."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from trial_runner import inotify
from trial_runner.inotify import Event, Inotify
from trial_runner.keeper.jobs.files import Claim, Log
from trial_runner.keeper.jobs.job import Job
from trial_runner.keeper.outboxes import outbox_follower
from trial_runner.keeper.outboxes.outbox_follower import Watches
from trial_runner.loop import Loop

pytestmark = pytest.mark.unit


class Notes:
    """Jobs that were told of, by name, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.errors: list[Exception] = []
        self.loop = Loop(self.errors.append)
        self.log = Log(str(folder / "keeper.log"))
        self.watches = Watches(self.loop, self.log, self._tell)

    def new_job(self, name: str) -> Job:
        """One that was started just now."""
        attempt = self.folder / name
        (attempt / "outbox").mkdir(parents=True)
        job = Job(Claim(name, "", "variable:1", str(attempt), "", 1.0), self.log.write)
        self.watches.add(job)
        return job

    def job(self, name: str) -> Job:
        """A follower with watched folders, or with folders looked at in turn."""
        job = self.new_job(name)
        while name in self.watches._beginning:
            self.loop.run_turn()
        return job

    def wait(self) -> list[str]:
        """Turns until something is told; what was told."""
        self.told.clear()
        while not self.told and not self.errors:
            self.loop.run_turn()
        assert not self.errors
        return self.told

    def _tell(self, jobs: Iterable[Job]) -> None:
        self.told += [job.name for job in jobs]


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


def test_lines_written_before_the_watch_are_reported(notes: Notes, tmp_path: Path) -> None:
    notes.watches.listen()
    notes.new_job("a")
    (tmp_path / "a" / "outbox" / "x").write_text("1\n")
    assert notes.wait() == ["a"]
    (tmp_path / "a" / "outbox" / "x").write_text("2\n")
    assert notes.wait() == ["a"]


def test_a_job_that_ends_at_once_is_never_watched(
    notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[str] = []
    monkeypatch.setattr(notes.watches, "_watch", lambda job, folder, mask: watched.append(job.name))
    notes.watches.listen()
    notes.watches.remove(notes.new_job("a"))
    notes.new_job("b")
    (tmp_path / "a" / "outbox" / "x").write_text("1\n")
    assert notes.wait() == ["b"]
    assert set(watched) == {"b"}


def test_changes_within_the_gathering_are_reported_once(notes: Notes, tmp_path: Path) -> None:
    notes.job("a"), notes.job("b")
    notes.watches.listen()
    for _ in range(100):
        (tmp_path / "b" / "outbox" / "x").write_text("1\n")
    assert notes.wait() == ["b"]
    (tmp_path / "a" / "outbox" / "x").write_text("1\n")
    assert notes.wait() == ["a"]


def test_the_metrics_folder_is_noticed_when_it_is_made(notes: Notes, tmp_path: Path) -> None:
    notes.job("a")
    notes.watches.listen()
    (tmp_path / "a" / ".nni").mkdir()
    assert notes.wait() == ["a"]
    (tmp_path / "a" / ".nni" / "metrics").write_text("x")
    assert notes.wait() == ["a"]


def test_other_files_of_an_attempt_wake_nothing(notes: Notes, tmp_path: Path) -> None:
    notes.job("a"), notes.job("b")
    notes.watches.listen()
    (tmp_path / "a" / "model.bin").write_text("x")
    (tmp_path / "b" / "outbox" / "x").write_text("1\n")
    assert notes.wait() == ["b"]


def test_removed_job_is_not_reported(notes: Notes, tmp_path: Path) -> None:
    removed = notes.job("a")
    notes.job("b")
    notes.watches.remove(removed)
    notes.watches.listen()
    (tmp_path / "a" / "outbox" / "x").write_text("1\n")
    (tmp_path / "b" / "outbox" / "x").write_text("1\n")
    assert notes.wait() == ["b"]


def test_an_overflow_is_news_of_all_jobs(notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes.job("a"), notes.job("b")
    monkeypatch.setattr(Inotify, "events", lambda self: iter([Event(-1, inotify.OVERFLOW, b"")]))
    notes.watches.listen()
    (tmp_path / "a" / "outbox" / "x").write_text("1\n")
    assert sorted(notes.wait()) == ["a", "b"]


def test_jobs_are_polled_without_inotify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_inotify() -> Inotify:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(outbox_follower, "Inotify", no_inotify)
    monkeypatch.setattr(outbox_follower, "_UNWATCHED_S", 0.01)
    notes = Notes(tmp_path)
    notes.job("a")
    notes.watches.listen()
    notes.job("b")
    assert sorted(notes.wait()) == ["a", "b"]
    assert sorted(notes.wait()) == ["a", "b"]
    assert "every second" in (tmp_path / "keeper.log").read_text()


def test_a_folder_that_cannot_be_watched_is_looked_at(
    notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Inotify, folder: str, mask: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(outbox_follower, "_UNWATCHED_S", 0.01)
    notes.job("watched")
    monkeypatch.setattr(Inotify, "add", full)
    notes.job("unwatched")
    notes.watches.listen()
    assert notes.wait() == ["unwatched"]
