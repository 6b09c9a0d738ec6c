"""A data directory and a copy of it, neither of which can see the other, on one machine reached by SSH."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_daemon import Daemon, processes_of, running_daemon
from tests.platforms.remote.ssh_machines import RealMachine

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

#: A refusal of a minute, with nothing else between, is a hold.
_HELD_S = 110

_REPORT = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[RealMachine]:
    machine = RealMachine(tmp_path / "machine")
    asyncio.run(machine.start())
    yield machine
    asyncio.run(machine.stop())
    for process in processes_of(str(machine.home)):
        process.kill()


@pytest.fixture
def copy(daemon: Daemon, tmp_path: Path) -> Iterator[Daemon]:
    """Of its data directory, as on another machine: what it was copied from is not to be found there."""
    (tmp_path / "copy").mkdir()
    with running_daemon(tmp_path / "copy") as copy:
        copy.terminate()
        for name in ("identity", "identity.place"):
            shutil.copy(daemon.data / name, copy.data / name)
        _write(copy, directory="/no/such/folder")
        yield copy.start()


def test_a_copy_is_told_so_and_displaces_nobody_until_it_has_a_name_of_its_own(
    daemon: Daemon, copy: Daemon, machine: RealMachine, code: Path, tmp_path: Path
) -> None:
    enough = tmp_path / "enough"
    config = _config(machine, f"while [ ! -e {enough} ]; do sleep 0.1; done; {_REPORT}")
    first = daemon.create(config, code)
    daemon.wait_for(first, lambda state: state["counts"].get("RUNNING") == 2)
    second = copy.create(_config(machine, _REPORT), code)
    hold = copy.wait_for(second, lambda state: state["hold"])["hold"]["sentence"]
    assert f"used by the manager of {daemon.data} on " in hold and f"not of {copy.data} on " in hold
    assert "nni-manager identity --moved" in hold and "nni-manager identity --own" in hold
    assert "nni-manager stop" in _identity(copy, "--own", returns=1), "its daemon works by the name that it has"
    copy.terminate()
    assert "is the name of" in _identity(copy, "--own")
    copy.start()
    copy.wait(second, "DONE")
    enough.touch()
    daemon.wait(first, "DONE")
    for one, id_ in ((daemon, first), (copy, second)):
        assert [(t["status"], t["attempt"]) for t in one.trials(id_)] == [("SUCCEEDED", 1)] * 2
    assert all(attempt["interruptions"] == [] for attempt in daemon.attempts(first)), "its connection was left alone"


def test_one_that_was_moved_goes_on_once_that_is_said(
    daemon: Daemon, copy: Daemon, machine: RealMachine, code: Path
) -> None:
    daemon.wait(daemon.create(_config(machine, _REPORT), code), "DONE")
    daemon.terminate()
    id_ = copy.create(_config(machine, _REPORT), code)
    copy.wait_for(id_, lambda state: state["hold"], timeout_s=_HELD_S)
    assert "from now on" in _identity(copy, "--moved")
    copy.call("POST", f"/experiments/{id_}/resume", json={})
    copy.wait(id_, "DONE")
    daemon.start()
    late = daemon.create(_config(machine, _REPORT), code)
    held = daemon.wait_for(late, lambda state: state["hold"], timeout_s=_HELD_S)
    assert str(copy.data) in held["hold"]["sentence"]


def _config(machine: RealMachine, command: str) -> dict[str, Any]:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}, "trialCommand": command,
        "trialCodeDirectory": ".", "trialConcurrency": 2, "maxTrialNumber": 2, "tuner": {"name": "Random"},
        "trainingService": {"platform": "remote", "machineList": [machine.entry()]},
    }  # fmt: skip


def _write(daemon: Daemon, **fields: Any) -> None:
    """Changes what is noted of the place of its data directory."""
    path = daemon.data / "identity.place"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def _identity(daemon: Daemon, *options: str, returns: int = 0) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "nni_manager", "identity", "--data-dir", str(daemon.data), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=daemon.environment, check=False)
    assert done.returncode == returns, done.stderr
    return done.stdout + done.stderr
