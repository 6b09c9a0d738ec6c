"""A daemon with jobs of a fake DLWorkspace: lost answers, a killed daemon, results through the home folder alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cluster import until
from tests.fakes import containers
from tests.fakes.process import FakeProcess, running
from tests.live_daemon import Daemon

pytestmark = pytest.mark.acceptance

TRIAL = """\
import nni
x = nni.get_next_parameter()["x"]
nni.report_final_result(x)
"""


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeProcess]:
    with running("dlts", tmp_path / "dlts") as fake:
        fake.control("reset", users={"alice@example.com": {"password": "passw0rd", "teams": ["platform"]}})
        yield fake


def create(daemon: Daemon, fake: FakeProcess, code: Path, trials: int, manager_ip: str) -> str:
    (code / "trial.py").write_text(TRIAL)
    config: dict[str, Any] = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}, "trialCommand": "python3 trial.py",
        "trialCodeDirectory": str(code), "trialGpuNumber": 0, "trialConcurrency": 3, "maxTrialNumber": trials,
        "tuner": {"name": "Random"}, "nniManagerIp": manager_ip,
        "trainingService": {
            "platform": "dlts", "dashboard": f"{fake.address}/", "team": "platform", "email": "alice@example.com",
            "password": "${PASSWORD}",
        },
    }  # fmt: skip
    return daemon.create(config, code, {"PASSWORD": "passw0rd"})


def assert_every_trial_has_its_own_result(daemon: Daemon, id: str, count: int) -> None:
    trials = daemon.call("GET", f"/experiments/{id}/trials")["trials"]
    assert [one["status"] for one in trials] == ["SUCCEEDED"] * count
    assert all(one["finalValue"] == one["parameters"]["x"] for one in trials)


def test_answers_get_lost_and_the_daemon_is_killed(listening: Daemon, fake: FakeProcess, code: Path) -> None:
    fake.control("behaviour", lose_answers=3)
    id = create(listening, fake, code, 5, "127.0.0.1")
    until(lambda: fake.control("jobs"), within_s=30)
    listening.kill()
    listening.start("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")
    listening.wait(id, "DONE")
    assert_every_trial_has_its_own_result(listening, id, 5)
    assert len(fake.control("jobs")) == 5
    assert "passw0rd" not in listening.log()


def test_results_come_through_the_home_folder_alone(
    listening: Daemon, fake: FakeProcess, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(containers.IMAGE, containers.SOON_READ)
    fake.stop()
    fake.start()
    id = create(listening, fake, code, 2, "127.0.0.2")
    listening.wait(id, "DONE")
    assert_every_trial_has_its_own_result(listening, id, 2)


def test_a_password_is_rotated_while_trials_run_and_none_is_lost(
    listening: Daemon, fake: FakeProcess, code: Path
) -> None:
    fake.control("behaviour", hold=True)
    id = create(listening, fake, code, 3, "127.0.0.1")
    until(lambda: len(fake.control("jobs")) == 3, within_s=30)
    fake.control("users", users={"alice@example.com": {"password": "another", "teams": ["platform"]}})
    listening.wait_for(id, lambda state: state["hold"] and "refuses" in state["hold"]["sentence"])
    listening.call("PUT", f"/experiments/{id}/credentials", json={"secrets": {"${PASSWORD}": "another"}})
    fake.control("behaviour", hold=False)
    listening.wait(id, "DONE")
    assert_every_trial_has_its_own_result(listening, id, 3)
    assert len(fake.control("jobs")) == 3
