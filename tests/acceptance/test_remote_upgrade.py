"""A daemon of the next version: keepers of the previous version keep their trials, are named, and are then replaced."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nni_manager.app.doctor import config_file
from nni_manager.app.doctor.finding import CheckOutcome
from tests.live_daemon import Daemon, assert_gone, picked
from tests.platforms.remote.ssh_machines import RealMachine
from trial_runner import protocol

pytestmark = [pytest.mark.acceptance, pytest.mark.true_start, pytest.mark.timeout(120)]

_BEFORE = "0.5.3"
_REPORT = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """


@pytest.fixture
def upgraded(tmp_path: Path, code: Path, machines: list[RealMachine]) -> Iterator[tuple[Daemon, str]]:
    """A daemon of this version, and an experiment with two trials at a keeper of the previous version.

    The trials wait for `go` on the first machine.
    """
    before = _package_of_before(tmp_path / "before")
    data = tmp_path / "data"
    data.mkdir()
    older = Daemon(data, program=("-P", "-m", "nni_manager"), environment={"PYTHONPATH": str(before)}).start()
    id_ = older.create(_config(machines[:1], tmp_path / "go", trials=2), code)
    older.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 2)
    older.kill()
    daemon = Daemon(data).start()
    yield daemon, id_
    daemon.terminate()
    assert_gone(str(data))


def test_trials_of_an_older_keeper_continue_with_others(
    upgraded: tuple[Daemon, str], machines: list[RealMachine], tmp_path: Path
) -> None:
    daemon, id_ = upgraded
    [service] = daemon.wait_for(id_, lambda state: _BEFORE in state["services"][0]["sentence"])["services"]
    assert (
        service["sentence"].startswith("127.0.0.1 takes no trials: ") and "its trials continue" in service["sentence"]
    )
    file = tmp_path / "both.json"
    file.write_text(json.dumps(_config(machines, tmp_path / "go", trials=6) | {"trialCodeDirectory": str(tmp_path)}))
    looks = [found for found in config_file.look(file, daemon.data) if _BEFORE in found.sentence]
    assert [found.verdict for found in looks] == [CheckOutcome.WARN], looks
    section = _config(machines, tmp_path / "go", trials=6)["trainingService"]
    change = {"trainingService": section, "trialConcurrency": 3, "maxTrialNumber": 6}
    daemon.call("PATCH", f"/experiments/{id_}", json=change)
    assert any(_BEFORE in warning["message"] for warning in daemon.status(id_)["warnings"])
    daemon.wait_for(id_, lambda state: state["counts"] == {"SUCCEEDED": 4, "RUNNING": 2})
    assert len(list(machines[1].home.rglob("trials/*/stdout"))) == 4
    (tmp_path / "go").touch()
    daemon.wait(id_, "DONE")
    assert picked(daemon.trials(id_), "finalResult") == [(str(number),) for number in range(6)]
    assert picked(daemon.attempts(id_), "state", "number") == [("SUCCEEDED", 1)] * 6
    daemon.wait_for(id_, lambda state: state["services"][0]["sentence"] == "")
    daemon.call("POST", f"/experiments/{id_}/stop")


def test_stop_names_trials_that_still_run(
    upgraded: tuple[Daemon, str], machines: list[RealMachine], tmp_path: Path
) -> None:
    daemon, id_ = upgraded
    daemon.wait_for(id_, lambda state: _BEFORE in state["services"][0]["sentence"])
    daemon.call("POST", f"/experiments/{id_}/stop")
    state = daemon.wait(id_, "STOPPED", timeout_s=20)
    [left] = [warning["message"] for warning in state["warnings"] if "may still run" in warning["message"]]
    assert _BEFORE in left, left
    (tmp_path / "go").touch()
    cleaned = daemon.call("POST", "/platforms/clean", json={})["cleaned"]
    assert [(one["jobs"], one["trouble"]) for one in cleaned] == [(2, "")] and daemon.status(id_)["warnings"] == []
    assert_gone(str(machines[0].home))


def _package_of_before(folder: Path) -> Path:
    """Folder of a `trial_runner` that reports another version, but otherwise is this one."""
    package, version = Path(protocol.__file__).parent, 'VERSION = "{}"'.format
    shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / package.name / "protocol.py"
    now, before = version(protocol.VERSION), version(_BEFORE)
    assert now in file.read_text()
    file.write_text(file.read_text().replace(now, before))
    return folder


def _config(machines: list[RealMachine], go: Path, trials: int) -> dict[str, Any]:
    """The first two trials wait for `go`, for longer than a machine may be away."""
    command = f"while [ $NNI_TRIAL_SEQ_ID -lt 2 ] && [ ! -e {go} ]; do sleep 0.05; done; {_REPORT}"
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": command,
        "trialCodeDirectory": ".",
        "trialConcurrency": 2,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {
            "platform": "remote",
            "machineGracePeriod": "1s",
            "machineList": [machine.entry() for machine in machines],
        },
    }
