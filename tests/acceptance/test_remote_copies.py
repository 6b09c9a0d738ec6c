"""A data directory and its copy, which cannot see each other, use one SSH machine."""

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

from tests.live_daemon import Daemon, running_daemon
from tests.platforms.remote.ssh_machines import RealMachine

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

#: Delay after which a broken connection is retried.
_TOLD_S = 110

#: The advised command.
_WAYS_OUT = "nni-manager identity --moved", "nni-manager identity --own"

_REPORT = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """


@pytest.fixture
def copy(daemon: Daemon, tmp_path: Path) -> Iterator[Daemon]:
    """A copy of its data directory, as on another machine: the original cannot be found there."""
    (tmp_path / "copy").mkdir()
    with running_daemon(tmp_path / "copy") as copy:
        copy.terminate()
        for name in ("identity", "identity.place"):
            shutil.copy(daemon.data / name, copy.data / name)
        _write(copy, directory="/no/such/folder")
        yield copy.start()


def test_copied_data_directory_needs_its_own_identity(
    daemon: Daemon, copy: Daemon, machine: RealMachine, code: Path, tmp_path: Path
) -> None:
    enough = tmp_path / "enough"
    config = _config(machine, f"while [ ! -e {enough} ]; do sleep 0.1; done; {_REPORT}")
    first = daemon.create(config, code)
    daemon.wait_for(first, lambda state: state["counts"].get("RUNNING") == 2)
    said = f"belongs to the manager of {daemon.data} on ", f"not of {copy.data} on ", *_WAYS_OUT
    refusal = _refusal(copy, _config(machine, _REPORT), code)
    assert all(words in refusal for words in said)
    copy.terminate()
    looked = _doctor(copy, {**_config(machine, _REPORT), "trialCodeDirectory": str(code)}, tmp_path)
    assert all(words in looked for words in said)
    assert "The name of" in _identity(copy, "--own")
    copy.start()
    second = copy.create(_config(machine, _REPORT), code)
    copy.wait(second, "DONE")
    enough.touch()
    daemon.wait(first, "DONE")
    for one, id_ in ((daemon, first), (copy, second)):
        assert [(t["status"], t["attempt"]) for t in one.trials(id_)] == [("SUCCEEDED", 1)] * 2
    assert all(attempt["interruptions"] == [] for attempt in daemon.attempts(first)), "its connection was left alone"


def test_copied_experiment_is_held_until_it_is_declared_moved(
    daemon: Daemon, copy: Daemon, machine: RealMachine, code: Path
) -> None:
    daemon.wait(daemon.create(_config(machine, _REPORT), code), "DONE")
    daemon.terminate()
    asyncio.run(machine.stop())
    id_ = copy.create(_config(machine, _REPORT), code)  # without a check of the machine
    asyncio.run(machine.start())
    _told(copy, id_, f"belongs to the manager of {daemon.data} on ", *_WAYS_OUT)
    assert "nni-manager stop" in _identity(copy, "--own", returns=1), "its daemon works by the name that it has"
    assert "is now in" in _identity(copy, "--moved")
    copy.call("POST", f"/experiments/{id_}/resume", json={})
    copy.wait(id_, "DONE")


def test_second_of_two_running_clones_is_held(
    daemon: Daemon, copy: Daemon, machine: RealMachine, code: Path, tmp_path: Path
) -> None:
    """Machine, directory and inode are the same; only the process differs."""
    copy.terminate()
    (copy.data / "identity").unlink()
    (copy.data / "identity").hardlink_to(daemon.data / "identity")
    copy.start()
    enough = tmp_path / "enough"
    first = daemon.create(_config(machine, f"while [ ! -e {enough} ]; do sleep 0.1; done; {_REPORT}"), code)
    daemon.wait_for(first, lambda state: state["counts"].get("RUNNING") == 2)
    second = copy.create(_config(machine, f"sleep 1000; {_REPORT}"), code)
    _told(copy, second, "which is active at the same time", *_WAYS_OUT)
    logins = machine.logins
    enough.touch()
    daemon.wait(first, "DONE")
    assert [(t["status"], t["attempt"]) for t in daemon.trials(first)] == [("SUCCEEDED", 1)] * 2
    assert machine.logins - logins <= 1, "they do not displace each other any more"


def test_moved_data_directory_works_once_declared_moved(
    daemon: Daemon, copy: Daemon, machine: RealMachine, code: Path
) -> None:
    daemon.wait(daemon.create(_config(machine, _REPORT), code), "DONE")
    daemon.terminate()
    assert f"belongs to the manager of {daemon.data} on " in _refusal(copy, _config(machine, _REPORT), code)
    assert "is now in" in _identity(copy, "--moved")
    copy.wait(copy.create(_config(machine, _REPORT), code), "DONE")
    daemon.start()
    assert f"belongs to the manager of {copy.data} on " in _refusal(daemon, _config(machine, _REPORT), code)


def test_delete_in_a_copy_leaves_the_original_running(
    daemon: Daemon, machine: RealMachine, code: Path, tmp_path: Path
) -> None:
    enough = tmp_path / "enough"
    id_ = daemon.create(_config(machine, f"while [ ! -e {enough} ]; do sleep 0.1; done; {_REPORT}"), code)
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 2)
    daemon.terminate()
    shutil.copytree(daemon.data, tmp_path / "whole" / "data", ignore=shutil.ignore_patterns("*.sock"))
    daemon.start()
    copy = Daemon(tmp_path / "whole" / "data").start()
    try:
        assert copy.status(id_)["status"] == "STOPPED"
        copy.call("DELETE", f"/experiments/{id_}")
    finally:
        copy.terminate()
    assert "is a copy of" in copy.log()
    enough.touch()
    daemon.wait(id_, "DONE")
    assert [(t["status"], t["attempt"]) for t in daemon.trials(id_)] == [("SUCCEEDED", 1)] * 2


def _told(daemon: Daemon, id_: str, *words: str) -> None:
    """Wait until the daemon reports that: as a hold, or for earlier trials."""

    def is_told(state: dict[str, Any]) -> bool:
        said = json.dumps([state["hold"], daemon.trials(id_)])
        return all(one in said for one in words)

    daemon.wait_for(id_, is_told, timeout_s=_TOLD_S)


def _refusal(daemon: Daemon, config: dict[str, Any], code: Path) -> str:
    with pytest.raises(AssertionError, match="trainingService remote: ") as refused:
        daemon.create(config, code)
    return str(refused.value)


def _doctor(daemon: Daemon, config: dict[str, Any], folder: Path) -> str:
    """Its answer to an experiment file."""
    (folder / "experiment.yml").write_text(json.dumps(config))
    command = [sys.executable, "-m", "nni_manager", "doctor", "--data-dir", str(daemon.data)]
    command += ["--config", str(folder / "experiment.yml")]
    done = subprocess.run(command, capture_output=True, text=True, env=daemon.environment, check=False)
    assert done.returncode == 1, done.stdout
    return done.stdout


def _config(machine: RealMachine, command: str) -> dict[str, Any]:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": command,
        "trialCodeDirectory": ".",
        "trialConcurrency": 2,
        "maxTrialNumber": 2,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "remote", "machineList": [machine.entry()]},
    }


def _write(daemon: Daemon, **fields: Any) -> None:
    """Change the recorded location of its data directory."""
    path = daemon.data / "identity.place"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def _identity(daemon: Daemon, *options: str, returns: int = 0) -> str:
    """Output of the command."""
    command = [sys.executable, "-m", "nni_manager", "identity", "--data-dir", str(daemon.data), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=daemon.environment, check=False)
    assert done.returncode == returns, done.stderr
    return done.stdout + done.stderr
