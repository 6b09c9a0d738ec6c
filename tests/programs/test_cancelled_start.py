"""An experiment whose start is cancelled, or called twice at once, is made once and known."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nni_manager.domain.errors import Conflict, NniManagerError
from nni_manager.programs import request
from nni_manager.programs.asynchronous import AsyncExperiment
from nni_manager.programs.experiment import Experiment

pytestmark = pytest.mark.unit


class SlowDaemon:
    """A client of a daemon that makes an experiment once it may, or is asked for a second one."""

    is_here = False

    def __init__(self) -> None:
        self.is_asked, self.may_answer = threading.Event(), threading.Event()
        self.made: list[str] = []
        self.stopped: list[str] = []
        self.error: Exception | None = None

    def create(self, **_: Any) -> str:
        if self.is_asked.is_set():
            self.may_answer.set()
        self.is_asked.set()
        assert self.may_answer.wait(10)
        if self.error is not None:
            raise self.error
        self.made.append(f"exp{len(self.made) + 1}")
        return self.made[-1]

    def experiment(self, id: str) -> dict[str, Any]:
        return {"id": id, "warnings": []}

    def daemon(self) -> dict[str, Any]:
        return {}

    def stop(self, id: str) -> None:
        self.stopped.append(id)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> SlowDaemon:
    found = SlowDaemon()
    monkeypatch.setattr(request, "prepare", lambda *_: (found, {}))
    monkeypatch.setattr(Experiment, "_client", lambda self: found)
    return found


async def cancelled(daemon: SlowDaemon, starting: Any) -> None:
    """Cancels a start that the daemon was asked for, and lets the daemon answer when the cancellation has arrived."""
    task = asyncio.ensure_future(starting)
    await asyncio.to_thread(daemon.is_asked.wait, 10)
    task.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    daemon.may_answer.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelled_start_leaves_an_experiment_that_is_known(daemon: SlowDaemon) -> None:
    experiment = AsyncExperiment()
    await cancelled(daemon, experiment.start())
    assert daemon.made == [experiment.id]
    with pytest.raises(Conflict, match="exp1 was already started"):
        await experiment.start()
    assert len(daemon.made) == 1 and not daemon.stopped


async def test_cancelled_start_that_fails_may_be_repeated(daemon: SlowDaemon) -> None:
    experiment = AsyncExperiment()
    daemon.error = NniManagerError("no room")
    await cancelled(daemon, experiment.start())
    daemon.error = None
    await experiment.start()
    assert daemon.made == [experiment.id]


async def test_block_cancelled_before_begin_stops_experiment(daemon: SlowDaemon) -> None:
    async def block() -> None:
        async with AsyncExperiment():
            raise AssertionError("not reached")

    await cancelled(daemon, block())
    assert daemon.made == daemon.stopped == ["exp1"]


async def test_experiment_that_ran_before_a_cancelled_block_goes_on(daemon: SlowDaemon) -> None:
    daemon.may_answer.set()
    experiment = await AsyncExperiment().start()
    assert await experiment.__aenter__() is experiment
    assert daemon.made == ["exp1"] and not daemon.stopped


def test_experiment_that_two_threads_start_is_made_once(daemon: SlowDaemon) -> None:
    experiment = Experiment()
    with ThreadPoolExecutor(1) as other:
        first = other.submit(experiment.start)
        assert daemon.is_asked.wait(10)
        with pytest.raises(Conflict, match="is starting"):
            experiment.start()
        daemon.may_answer.set()
        first.result(timeout=10)
    assert daemon.made == [experiment.id]
