"""A daemon with jobs on a fake DLWorkspace: lost answers, a killed daemon, results only through the home folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import sandbox
from tests.fakes.process import FakeProcess, running
from tests.live_daemon import Daemon
from tests.waiting import until

pytestmark = pytest.mark.acceptance

TRIAL = """\
import nni
x = nni.get_next_parameter()["x"]
nni.report_final_result(x)
"""


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeProcess]:
    with running("dlts", tmp_path / "dlts") as fake:
        set_password(fake, "reset", "passw0rd")
        yield fake


def set_password(fake: FakeProcess, verb: str, password: str, **others: Any) -> None:
    users = {"alice@example.com": {"password": password, "teams": ["platform"]}}
    fake.control(verb, users=users, **others)


def create(daemon: Daemon, fake: FakeProcess, code: Path, trials: int, manager_ip: str) -> str:
    (code / "trial.py").write_text(TRIAL)
    # the manager runs where pods run: both see its folder under the same path
    set_password(fake, "users", "passw0rd", mounts=[[str(daemon.data)] * 2])
    config: dict[str, Any] = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": "python3 trial.py",
        "trialCodeDirectory": str(code),
        "trialGpuNumber": 0,
        "trialConcurrency": 3,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "nniManagerIp": manager_ip,
        "trainingService": {
            "platform": "dlts",
            "dashboard": f"{fake.address}/",
            "team": "platform",
            "email": "alice@example.com",
            "password": "${PASSWORD}",
        },
    }
    return daemon.create(config, code, {"PASSWORD": "passw0rd"})


def assert_every_trial_has_its_own_result(daemon: Daemon, id: str, count: int) -> None:
    trials = daemon.call("GET", f"/experiments/{id}/trials")["trials"]
    assert [one["status"] for one in trials] == ["SUCCEEDED"] * count
    assert all(one["finalValue"] == one["parameters"]["x"] for one in trials)


def test_lost_answers_and_a_killed_daemon_cost_no_trial(listening: Daemon, fake: FakeProcess, code: Path) -> None:
    fake.control("behaviour", lose_answers=3)
    id = create(listening, fake, code, 5, "127.0.0.1")
    until(lambda: fake.control("jobs"), within_s=30)
    listening.kill()
    listening.start("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")
    listening.wait(id, "DONE")
    assert_every_trial_has_its_own_result(listening, id, 5)
    assert len(fake.control("jobs")) == 5
    assert "passw0rd" not in listening.log()


def test_results_arrive_through_the_home_folder(
    shared: Daemon, fake: FakeProcess, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.IMAGE, sandbox.SOON_READ)
    fake.stop()
    fake.start()
    id = create(shared, fake, code, 2, "127.0.0.2")
    shared.wait(id, "DONE")
    assert_every_trial_has_its_own_result(shared, id, 2)


def test_password_rotation_loses_no_running_trial(shared: Daemon, fake: FakeProcess, code: Path) -> None:
    fake.control("behaviour", hold=True)
    id = create(shared, fake, code, 3, "127.0.0.1")
    until(lambda: len(fake.control("jobs")) == 3, within_s=30)
    set_password(fake, "users", "another")
    shared.wait_for(id, lambda state: state["hold"] and "refuses" in state["hold"]["sentence"])
    shared.call("PUT", f"/experiments/{id}/credentials", json={"secrets": {"${PASSWORD}": "another"}})
    fake.control("behaviour", hold=False)
    shared.wait(id, "DONE")
    assert_every_trial_has_its_own_result(shared, id, 3)
    assert len(fake.control("jobs")) == 3
