"""Two experiments on one daemon are independent, and a stop is quick."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.acceptance.command_line import REPORT, RUN_ON, CommandLine, command_line, state_of
from tests.live_daemon import Daemon, picked

pytestmark = pytest.mark.acceptance


@pytest.fixture
def nnictl(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        yield line


def test_stopping_one_experiment_leaves_the_other_running(nnictl: CommandLine) -> None:
    daemon, gate = nnictl.serve(), nnictl.folder / "gate"
    waits = f"until [ -e {gate} ]; do sleep 0.02; done; {REPORT}"
    stopped = nnictl.create(trialCommand=RUN_ON, trialConcurrency=4)
    kept = nnictl.create(trialCommand=waits, trialConcurrency=4, maxTrialNumber=8)
    with ThreadPoolExecutor() as threads:
        streams = {id_: threads.submit(_follow, daemon, id_) for id_ in (stopped, kept)}
        for id_ in streams:
            state_of(daemon, id_, RUNNING=4)
        before = _jobs(daemon, kept)
        daemon.call("POST", f"/experiments/{stopped}/stop")
        assert _jobs(daemon, stopped) == {}
        assert _jobs(daemon, kept) == before and len(before) == 4
        assert daemon.status(kept)["counts"] == {"RUNNING": 4}
        gate.touch()
        state_of(daemon, kept, SUCCEEDED=8)
        daemon.wait(kept, "DONE")
        daemon.call("POST", f"/experiments/{kept}/stop")
        states = {id_: stream.result(20) for id_, stream in streams.items()}
    assert picked(daemon.trials(kept), "status") == [("SUCCEEDED",)] * 8
    assert picked(daemon.attempts(kept), "state") == [("SUCCEEDED",)] * 8
    assert picked(daemon.trials(stopped), "status") == [("USER_CANCELED",)] * 4
    _check_stream(states[stopped], stopped, "STOPPED")
    _check_stream(states[kept], kept, "STOPPED")
    assert states[kept][-1]["counts"] == {"SUCCEEDED": 8}  # DONE itself may fall between two events
    assert not any("USER_CANCELED" in state["counts"] for state in states[kept])
    assert daemon.terminate() == 0
    assert nnictl.traces() == []


@pytest.mark.alone
def test_trials_that_obey_sigterm_end_at_once(nnictl: CommandLine) -> None:
    daemon = nnictl.serve()
    id_ = nnictl.create(trialCommand=RUN_ON, trialConcurrency=4)
    state_of(daemon, id_, RUNNING=4)
    assert len(_jobs(daemon, id_)) == 4
    began = time.monotonic()
    daemon.call("POST", f"/experiments/{id_}/stop")
    took_s = time.monotonic() - began
    print(f"stopped in {took_s:.3f} s")
    assert _processes(daemon, id_) == {}  # the keeper may have ended, too
    assert took_s < 1


def _follow(daemon: Daemon, id_: str) -> list[dict[str, Any]]:
    """All states of an experiment's event stream, to its end."""
    with daemon.client() as client, client.stream("GET", f"/api/v1/experiments/{id_}/events", timeout=40) as stream:
        return [json.loads(line[5:]) for line in _lines(stream) if line.startswith("data:")]


def _lines(stream: httpx.Response) -> Iterator[str]:
    assert stream.status_code == 200 and stream.headers["content-type"].startswith("text/event-stream")
    yield from stream.iter_lines()


def _check_stream(states: list[dict[str, Any]], id_: str, last: str) -> None:
    assert {state["id"] for state in states} == {id_}
    revisions = [state["revision"] for state in states]
    assert revisions == sorted(revisions)
    assert [state["status"] for state in states].index(last) == len(states) - 1


def _jobs(daemon: Daemon, id_: str) -> dict[int, str]:
    """Process id → folder of the attempt, for processes that the keeper started."""
    keeper = daemon.keeper_pid()
    return {pid: folder for pid, (folder, parent) in _processes(daemon, id_).items() if parent == keeper}


def _processes(daemon: Daemon, id_: str) -> dict[int, tuple[str, int]]:
    """Process id → (folder of the attempt, parent's id), for the attempts' processes and their children."""
    mark, found = f"{daemon.data / id_ / 'trials'}/", {}
    for process in psutil.process_iter(["ppid", "environ"]):
        folder = (process.info["environ"] or {}).get("NNI_SYS_DIR", "")
        if folder.startswith(mark):
            found[int(process.pid)] = folder, int(process.info["ppid"])
    return found
