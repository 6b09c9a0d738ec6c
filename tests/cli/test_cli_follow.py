"""Waiting in the foreground: display, actions at the end, exit code."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from fake_manager import FakeManager, state

from nni_manager.cli.experiment.watch import follow
from nni_manager.client.connection import Unreachable
from nni_manager.domain.errors import NniManagerError, NotFound
from nni_manager.programs import following, waiting
from nni_manager.programs.following import FollowedExperiment
from nni_manager.programs.progress import Progress
from nni_manager.programs.waiting import StateFeed, StreamEnded, Watch

pytestmark = pytest.mark.unit

BEST = {"trialId": "ab1cd", "value": 0.5, "parameters": {"x": 1}}


class Record:
    """A display that records."""

    def __init__(self, tick_s: float | None = None) -> None:
        self.tick_s = tick_s
        self.shown: list[Progress] = []
        self.notes: list[str] = []
        self.closed: list[Progress] = []

    def show(self, now: Progress) -> None:
        self.shown.append(now)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self, now: Progress) -> None:
        self.closed.append(now)


class Interrupted(Record):
    def show(self, now: Progress) -> None:
        raise KeyboardInterrupt


def followed(manager: FakeManager) -> FollowedExperiment:
    return FollowedExperiment("k3v9x0qa", lambda: manager, lambda: manager)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time passes between two daemons."""
    monkeypatch.setattr(following, "RETURN_S", 0.0)
    monkeypatch.setattr(waiting, "_WAITS_S", (0.0,) * 5)


@pytest.fixture
def running(manager: FakeManager) -> FakeManager:
    manager.add(state())
    return manager


def test_done_closes_the_experiment(running: FakeManager, capsys: pytest.CaptureFixture[str]) -> None:
    done = state(status="DONE", counts={"SUCCEEDED": 10}, best=BEST)
    running.stream = [state(), state(counts={"SUCCEEDED": 5}), done]
    display = Record()
    assert follow(followed(running), display) == 0
    assert running.calls == [("stop", "k3v9x0qa")]
    assert [one.done for one in display.closed] == [10]
    out = capsys.readouterr().out
    assert (
        "Best result 0.5, trial ab1cd" in out
        and '"x": 1' in out
        and out.endswith("`nnictl view k3v9x0qa` opens its page again.\n")
    )


def test_done_without_success_fails_and_closes(running: FakeManager, capsys: pytest.CaptureFixture[str]) -> None:
    running.stream = [state(status="DONE", counts={"FAILED": 10})]
    assert follow(followed(running), Record()) == 1
    assert running.calls == [("stop", "k3v9x0qa")]
    assert "no trial succeeded" in capsys.readouterr().err


def test_trouble_leaves_the_experiment_open(running: FakeManager, capsys: pytest.CaptureFixture[str]) -> None:
    hold = {"code": "TUNER_RAISED", "sentence": "the tuner raised KeyError", "details": "Traceback"}
    running.stream = [state(), state(hold=hold)]
    assert follow(followed(running), Record()) == 1
    assert running.calls == []
    assert "is on hold: the tuner raised KeyError\nTraceback\n" in capsys.readouterr().err


def test_a_passing_hold_is_noted_once(running: FakeManager) -> None:
    hold = {"code": "STORE_UNAVAILABLE", "sentence": "the disk is full", "details": ""}
    proceed = threading.Event()

    def events(id: str) -> Iterator[dict]:
        for one in (state(hold=hold), state(hold=hold), state(), state(hold=hold), state(status="DONE")):
            yield one
            proceed.wait(5)  # so that no state is overtaken by the next
            proceed.clear()

    class Stepping(Record):
        def show(self, now: Progress) -> None:
            proceed.set()

    running.events = events
    display = Stepping()
    follow(followed(running), display)
    proceed.set()
    assert display.notes == ["Waiting: the disk is full"] * 2


def test_lasting_wait_is_noted_once_in_five_minutes() -> None:
    """Its sentence may change each second, and one that passes is not noted."""
    display, now = Record(), [0.0]
    watch = Watch(display, lambda: now[0])
    for now[0], waits in ((0, 1), (9, 1), (9.5, 0), (10, 1), (19, 1), (20, 1), (100, 1), (319, 1), (320, 1)):
        waits_for = {"sentence": f"gpu 0 is busy at {now[0]} s", "sinceMs": 1} if waits else None
        watch.take(state(waitsFor=waits_for))
    assert display.notes == ["Waiting: gpu 0 is busy at 20 s", "Waiting: gpu 0 is busy at 320 s"]


def test_interrupt_stops_the_experiment(running: FakeManager, capsys: pytest.CaptureFixture[str]) -> None:
    running.stream = [state()]
    assert follow(followed(running), Interrupted()) == 130
    assert running.calls == [("stop", "k3v9x0qa")]
    assert "`nnictl resume k3v9x0qa`" in capsys.readouterr().err


def gone(id: str) -> dict:
    raise Unreachable("nobody answers")


def test_the_daemon_goes_away(
    running: FakeManager, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(following, "RETURN_S", 0.3)
    monkeypatch.setattr(following, "_SILENT_S", 0.0)
    running.stream = [state()]
    running.experiment = gone
    words = r"the daemon ended; its trials keep running.*`nni-manager serve`.*resume k3v9x0qa --foreground"
    with pytest.raises(NniManagerError, match=words):
        follow(followed(running), Record())
    assert running.calls == []
    assert capsys.readouterr().err == "The daemon has ended. Waiting up to 0 s for the next one.\n"


@pytest.mark.parametrize("error", [Unreachable("connection reset"), ValueError("no JSON")])
def test_the_stream_breaks(running: FakeManager, error: Exception) -> None:
    def events(id: str) -> Iterator[dict]:
        yield state()
        raise error

    running.events, running.experiment = events, gone
    with pytest.raises(NniManagerError, match="the daemon exited"):
        follow(followed(running), Record())


def test_next_daemon_is_followed(running: FakeManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one ends in order, as where `nni-manager serve` takes over; for a moment none answers."""
    streams = [[state()], [state(status="DONE", counts={"SUCCEEDED": 10}, best=BEST)]]
    running.events = lambda id: (one for one in streams.pop(0))
    looks = [None, None, running, running]
    monkeypatch.setattr(following, "RETURN_S", 60.0)
    experiment = FollowedExperiment("k3v9x0qa", lambda: running, lambda: looks.pop(0))
    assert follow(experiment, Record()) == 0
    assert running.calls == [("stop", "k3v9x0qa")]


def test_removed_experiment_ends_the_wait(running: FakeManager) -> None:
    def removed(id: str) -> dict:
        raise NotFound("cannot find experiment k3v9x0qa")

    running.experiment = removed
    with pytest.raises(NotFound, match="cannot find experiment k3v9x0qa"):
        follow(followed(running), Record())


def test_closed_experiment_ends_the_wait(running: FakeManager) -> None:
    running.stream = [state()]
    running.known["k3v9x0qa"]["status"] = "STOPPED"
    running.known["k3v9x0qa"]["errors"] = ["its folder is gone"]
    with pytest.raises(NniManagerError, match="k3v9x0qa is not running any more: its folder is gone"):
        follow(followed(running), Record())


def test_the_clock_goes_on_between_states(running: FakeManager) -> None:
    release, times = threading.Event(), iter([100.0, 100.0, 107.0, 107.0])

    def events(id: str) -> Iterator[dict]:
        yield state()
        release.wait(5)

    class Ticking(Record):
        def show(self, now: Progress) -> None:
            super().show(now)
            if len(self.shown) == 2:
                release.set()
                raise KeyboardInterrupt

    running.events = events
    display = Ticking(tick_s=0.01)
    assert follow(followed(running), display, clock=lambda: next(times)) == 130
    assert [one.elapsed_s for one in display.shown] == [60.0, 67.0]


def test_feed_answers_the_newest_state_then_the_end() -> None:
    read = threading.Event()

    def states() -> Iterator[dict]:
        yield from (state(revision=1), state(revision=2))
        read.set()

    feed = StateFeed(states)
    assert read.wait(5)
    assert feed.next(5)["revision"] == 2
    with pytest.raises(StreamEnded):
        feed.next(5)


def test_feed_has_a_limit() -> None:
    release = threading.Event()
    feed = StateFeed(lambda: iter(lambda: release.wait(5) and None, None))
    assert feed.next(0.01) is None
    release.set()
