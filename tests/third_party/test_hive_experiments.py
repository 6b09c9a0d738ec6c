"""Experiments on a third party's platform, through a real daemon: one, and several on one account."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hive import Hive, running_hive, section

from tests.live_daemon import Daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.group("hive"), pytest.mark.timeout(180)]

_TRIAL = """echo '{"type": "final", "value": VALUE}' >> "$NNI_OUTBOX" """
_MANY = 8
#: What the account may ask in a second, see `nni_hive.connection`, and one that was on its way for longer.
_CALLS_PER_S = 20 + 1


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    with running_hive(tmp_path / "hive") as hive:
        yield hive


@pytest.fixture
def daemon(tmp_path: Path, installed: Path) -> Iterator[Daemon]:
    path = os.pathsep.join(filter(None, (str(installed), os.environ.get("PYTHONPATH"))))
    daemon = Daemon(tmp_path / "data", environment={"PYTHONPATH": path})
    try:
        yield daemon.start("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")
    finally:
        daemon.terminate()


def _create(daemon: Daemon, hive: Hive, directory: Path, value: int, trials: int) -> str:
    directory.mkdir(parents=True)
    config = {
        "searchSpace": {"x": {"_type": "choice", "_value": [1]}},
        "trialCommand": _TRIAL.replace("VALUE", str(value)),
        "trialCodeDirectory": ".",
        "trialConcurrency": trials,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "nniManagerIp": "127.0.0.1",
        "trainingService": section(hive),
    }
    return daemon.create(config, directory)


def _results(daemon: Daemon, id: str) -> list[tuple[str, object]]:
    trials = daemon.call("GET", f"/experiments/{id}/trials")
    return [(trial["status"], trial["finalValue"]) for trial in trials["trials"]]


def test_experiment_runs_is_closed_and_is_deleted(daemon: Daemon, hive: Hive, tmp_path: Path) -> None:
    id = _create(daemon, hive, tmp_path / "code", 7, trials=2)
    daemon.wait(id, "DONE")
    assert _results(daemon, id) == [("SUCCEEDED", 7)] * 2
    daemon.call("POST", f"/experiments/{id}/stop")
    daemon.wait(id, "STOPPED")
    daemon.call("DELETE", f"/experiments/{id}")
    assert hive.act("traces", group=id) == []


def test_experiments_of_an_account_share_session_and_pace(daemon: Daemon, hive: Hive, tmp_path: Path) -> None:
    ids = [_create(daemon, hive, tmp_path / "code" / str(number), number, trials=1) for number in range(_MANY)]
    for number, id in enumerate(ids):
        daemon.wait(id, "DONE")
        assert _results(daemon, id) == [("SUCCEEDED", number)]
        assert [service["status"] for service in daemon.status(id)["services"]] == ["up"]
    log = hive.log()
    moments = [moment for moment, _ in log]
    assert hive.logins == 2, "of the first one's preflight, when there was nothing to share, and of all experiments"
    assert max(sum(start <= moment < start + 1 for moment in moments) for start in moments) <= _CALLS_PER_S
    submitted = [what for _, what in log if what.startswith("PUT /v1/jobs/")]
    assert {what.split("_trial_")[0].rpartition("_")[2] for what in submitted} == set(ids)
