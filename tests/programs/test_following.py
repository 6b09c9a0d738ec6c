"""Waiting for an experiment whose stream of states ends before it does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from nni_manager.client.connection import Unreachable
from nni_manager.domain.errors import NniManagerError
from nni_manager.programs import following, waiting
from nni_manager.programs.asynchronous import AsyncExperiment
from nni_manager.programs.waiting import StreamEnded, StreamEnds

pytestmark = pytest.mark.unit

STATE = {
    "id": "exp1",
    "status": "RUNNING",
    "hold": None,
    "counts": {"SUCCEEDED": 1},
    "best": {"value": 1, "parameters": {}, "trialId": "aaaaa"},
    "maxTrialNumber": None,
    "execDurationMs": 0,
    "maxExperimentDuration": None,
    "commonFailure": None,
}
DONE = STATE | {"status": "DONE"}
DIES, ENDS = Unreachable("broken"), None


class Scripted:
    """Streams that end one after the other, each with what it brings before: the last repeats."""

    id = "exp1"

    def __init__(self, *streams: tuple[Any, ...]) -> None:
        self._streams = list(streams)
        #: Whether a daemon might be started, at each end.
        self.started: list[bool] = []

    def events(self, *, may_start: bool) -> Iterator[dict[str, Any]]:
        assert may_start is (self.started[-1] if self.started else True)
        *states, end = self._streams.pop(0) if len(self._streams) > 1 else self._streams[0]
        yield from states
        if end is not None:
            raise end

    def goes_on(self, *, may_start: bool) -> bool:
        self.started.append(may_start)
        return True

    def broken_off(self) -> str:
        return "it went away"

    def stop(self) -> None:
        raise AssertionError("nothing was to be stopped")


async def awaited(experiment: Scripted) -> bool:
    found = AsyncExperiment()
    found._experiment = experiment  # type: ignore[assignment]
    return await found.wait()


@pytest.fixture(params=["in turn", "awaited"])
def wait(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(waiting, "_WAITS_S", (0.0,) * 5)
    if request.param == "awaited":
        return lambda experiment: asyncio.run(awaited(experiment))
    return lambda experiment: following.wait(experiment, None, shown=False)


def test_daemon_that_dies_at_each_start_is_not_started_for_ever(wait: Any) -> None:
    experiment = Scripted((STATE, DIES))
    with pytest.raises(NniManagerError, match="exited 6 times in a row"):
        wait(experiment)
    assert experiment.started == [True] * 5


def test_daemon_that_was_ended_on_purpose_is_not_started(wait: Any) -> None:
    """While it ends, its socket may answer once more, or break off."""
    experiment = Scripted((STATE, ENDS), (DIES,), (ENDS,), (STATE, DONE, ENDS))
    assert wait(experiment) is True
    assert experiment.started == [False] * 3


def test_daemon_that_dies_after_a_stopped_one_is_restarted(wait: Any) -> None:
    experiment = Scripted((STATE, ENDS), (STATE, DIES), (STATE, DONE, ENDS))
    assert wait(experiment) is True
    assert experiment.started == [False, True]


def test_time_limit_counts_while_a_dead_daemon_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_WAITS_S", (3600.0,))
    assert following.wait(Scripted((STATE, DIES)), 0.05, shown=False) is False


def test_ctrl_c_right_after_start_stops_experiment() -> None:
    """The first import after the call of `wait` is where it comes, early in it on a busy machine."""
    program = """
    import sys
    from nni_manager import Experiment

    class Waited(Experiment):
        id = "exp1"

        def stop(self):
            print("stopped")

    class CtrlC:
        def find_spec(self, *_):
            sys.meta_path.remove(self)
            raise KeyboardInterrupt

    waited = Waited()
    sys.meta_path.insert(0, CtrlC())
    try:
        waited.wait()
    except KeyboardInterrupt:
        print("interrupted")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    assert done.stdout.split() == ["stopped", "interrupted"], done.stderr


def test_streams_that_last_do_not_add_up() -> None:
    now = [0.0]
    ends = StreamEnds("exp1", lambda: now[0])
    for _ in range(50):
        ends.begin()
        now[0] += 61
        assert ends.note(StreamEnded(in_order=False), heard=True) == 0
