"""Work outside a keeper's loop, and jobs that wait for it: a failure affects only its own job."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import left_children
from trial_runner import protocol
from trial_runner.keeper.code.background import BackgroundWork, Then
from trial_runner.keeper.code.copying import TellStep, Unpacking
from trial_runner.keeper.code.preparing import Preparing
from trial_runner.keeper.serving.requests import Message, Refusal, spawn_request
from trial_runner.loop import Loop

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]


@pytest.fixture
def errors() -> list[Exception]:
    """What callbacks raised."""
    return []


@pytest.fixture
def loop(errors: list[Exception]) -> Iterator[Loop]:
    with left_children.reaped():
        yield Loop(errors.append)


@pytest.fixture
def background(loop: Loop) -> BackgroundWork:
    return BackgroundWork(loop, 1)


def _fail(_: Refusal | None) -> None:
    raise OSError(errno.EAGAIN, "no process is left")


def test_callback_of_one_work_does_not_delay_the_next(
    loop: Loop, background: BackgroundWork, errors: list[Exception]
) -> None:
    done: list[Refusal | None] = []
    background.run(lambda tell: None, _fail, writes="/a")
    background.run(lambda tell: None, done.append, writes="/b")
    while not done:
        loop.run_turn()
    assert (done, [type(error) for error in errors], background.count) == ([None], [BlockingIOError], 0)


def test_folder_is_free_after_stopped_work(loop: Loop, background: BackgroundWork) -> None:
    free: list[bool] = []
    background.run(lambda tell: _wait(), _fail, writes="/a/code")
    background.stop_in("/a", lambda: free.append(True))
    while not free:
        loop.run_turn()


def _wait() -> None:
    """Until this process is killed."""
    os.read(os.pipe()[0], 1)


def test_a_copy_that_cannot_be_removed_now_is_left(
    background: BackgroundWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise OSError(errno.EAGAIN, "no process is left")

    monkeypatch.setattr(os, "fork", refuse)
    Unpacking(background).drop({"folder": str(tmp_path)})
    assert background.count == 0


class _Ready(Unpacking):
    """Code that is in its place at once."""

    def __init__(self) -> None:
        pass

    def begin(self, code: object, then: Then, tell: TellStep) -> None:
        self.then = then


def test_a_job_that_the_keeper_fails_to_start_is_refused(tmp_path: Path) -> None:
    """It would be about to start for ever, and the keeper would never end."""
    told: list[Message] = []
    unpacking = _Ready()

    def start(*_: Any) -> dict[str, Any]:
        raise AssertionError("a fault of ours")

    preparing = Preparing(unpacking, start, told.append, lambda call: call())
    asked = {
        "name": "job",
        "owner": "me",
        "command": "true",
        "directory": str(tmp_path),
        "environment": {},
        "files": {},
        "attempt_directory": str(tmp_path / "job"),
        "grace_s": 1,
    }
    preparing.begin(spawn_request(asked), {})
    with pytest.raises(AssertionError):
        unpacking.then(None)
    (refused,) = told
    assert (refused["event"], refused["kind"], len(preparing)) == ("refused", protocol.INVALID, 0)
