"""Experiments that NNI 3.0 ran and stopped are shown and continued."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.upstream import Nni
from tests.live_daemon import Daemon
from tests.upstream.warm_python import WarmPython

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.timeout(1200),  # the first test of a session may install nni
    pytest.mark.group("warm_nni3_launchers"),  # one is enough
]

TRIALS = 4
TRIAL = """
import nni
x = nni.get_next_parameter()["x"]
nni.report_intermediate_result(x / 2)
nni.report_final_result(x)
"""
#: The first run stays until it is killed.
LONG_TRIAL = """
import os, time, nni
nni.get_next_parameter()
run = 2 if os.path.exists("again") else 1
for step in range(4 - run):
    nni.report_intermediate_result(10 * run + step)
    time.sleep(0.1)  # so that the two trials report alternately
nni.report_final_result(run)
print("run", run)
time.sleep(600 if run == 1 else 0)
"""


@pytest.fixture
def left(tmp_path: Path, warm_nni3: WarmPython) -> tuple[Path, str]:
    """(home folder, id) of an experiment that NNI finished and stopped."""
    with Nni(tmp_path, warm_nni3.bin / "nnictl") as nni:
        return nni.home, _done(nni, warm_nni3.python)


@pytest.fixture
def killed(tmp_path: Path, warm_nni3: WarmPython) -> tuple[Nni, str, dict[str, Any]]:
    """NNI, killed with two trials that had reported everything; experiment id and NNI's last answers."""
    nni = Nni(tmp_path, warm_nni3.bin / "nnictl")
    _create(nni, warm_nni3.python, LONG_TRIAL, trials=2)
    try:
        nni.wait_for(lambda: len(nni.get("metric-data")) == 8)
        return nni, nni.id, {path: nni.get(path) for path in ("metric-data", "metric-data-latest")}
    finally:
        nni.kill()


def _done(nni: Nni, python: Path) -> str:
    _create(nni, python, TRIAL, TRIALS)
    nni.wait("DONE")
    return nni.id


def _create(nni: Nni, python: Path, trial: str, trials: int) -> None:
    (nni.code / "trial.py").write_text(trial)
    config = {
        "experimentName": "theirs",
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"{python} trial.py",
        "trialCodeDirectory": str(nni.code),
        "trialConcurrency": 2,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random"},
        "trainingService": {"platform": "local"},
    }
    nni.create_with_tuner(config)


def _daemon(home: Path) -> Daemon:
    return Daemon(home / "nni-experiments", environment={"HOME": str(home), "NNI_MANAGER_DATA": ""})


def _noted(nni: Nni) -> tuple[int, int]:
    """Environment in which NNI's tools find it."""
    entry = json.loads((nni.home / "nni-experiments" / ".experiment").read_text())[nni.id]
    return entry["pid"], entry["port"]


def test_experiment_still_run_by_nni_is_shown_and_not_touched(tmp_path: Path, warm_nni3: WarmPython) -> None:
    with Nni(tmp_path, warm_nni3.bin / "nnictl") as nni:
        daemon = _daemon(nni.home)
        daemon.start()
        daemon.terminate()  # its index is older than the experiment
        id_ = _done(nni, warm_nni3.python)
        noted = _noted(nni)
        daemon.start()
        try:
            assert [one["id"] for one in daemon.call("GET", "/experiments")["experiments"]] == [id_]
            with daemon.client() as client:
                assert client.delete(f"/api/v1/experiments/{id_}").status_code == 409
        finally:
            daemon.terminate()
        assert _noted(nni) == noted
        assert nni.get("check-status")["status"] == "DONE"


def test_experiment_of_nni_is_shown_and_continues(left: tuple[Path, str]) -> None:
    home, id_ = left
    daemon = _daemon(home)
    with closing(sqlite3.connect(home / "nni-experiments" / id_ / "db" / "nni.sqlite")) as connection:
        reported = dict(connection.execute("SELECT trialJobId, data FROM MetricData WHERE type = 'FINAL'").fetchall())
    daemon.start()
    try:
        (listed,) = daemon.call("GET", "/experiments")["experiments"]
        assert (listed["id"], listed["name"], listed["status"]) == (id_, "theirs", "STOPPED")
        assert _results(daemon, id_) == {trial: json.loads(json.loads(data)) for trial, data in reported.items()}
        log = daemon.call("GET", f"/experiments/{id_}")
        assert (log["trialsMade"], log["counts"]) == (TRIALS, {"SUCCEEDED": TRIALS})
        daemon.call("POST", f"/experiments/{id_}/resume")
        daemon.call("PATCH", f"/experiments/{id_}", json={"maxTrialNumber": TRIALS + 2})
        daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED") == TRIALS + 2)
        assert len(_results(daemon, id_)) == TRIALS + 2
        daemon.call("POST", f"/experiments/{id_}/stop")
    finally:
        daemon.terminate()


def _results(daemon: Daemon, id_: str) -> dict[str, Any]:
    """Final result by trial; check that each matches the trial's parameters."""
    trials = daemon.call("GET", f"/experiments/{id_}/trials")["trials"]
    assert all(trial["finalValue"] == trial["parameters"]["x"] for trial in trials), trials
    return {trial["id"]: trial["finalValue"] for trial in trials}


def test_unfinished_trials_rerun_and_keep_earlier_results(killed: tuple[Nni, str, dict[str, Any]]) -> None:
    nni, id_, answered = killed
    before = _files_of_trials(nni, id_)
    (nni.code / "again").touch()
    daemon = _daemon(nni.home)
    daemon.start()
    try:
        (listed,) = daemon.call("GET", "/experiments")["experiments"]
        assert {path: _nni_api(daemon, id_, path) for path in answered} == answered
        assert listed["endedMs"] == daemon.status(id_)["endedMs"] is not None
        daemon.call("POST", f"/experiments/{id_}/resume")
        daemon.wait(id_, "DONE")
        trials = daemon.call("GET", f"/experiments/{id_}/trials")["trials"]
        assert [(trial["attempt"], trial["intermediates"], trial["finalValue"]) for trial in trials] == [(2, 2, 2)] * 2
        jobs = _nni_api(daemon, id_, "trial-jobs")
        assert [json.loads(json.loads(job["finalMetricData"][0]["data"])) for job in jobs] == [2, 2]
        assert [result["value"] for result in _nni_api(daemon, id_, "export-data")] == ["2", "2"]
        metrics = _nni_api(daemon, id_, "metric-data")
        assert sorted(json.loads(json.loads(metric["data"])) for metric in metrics) == [2, 2, 20, 20, 21, 21]
        assert _files_of_trials(nni, id_) == before
        daemon.call("POST", f"/experiments/{id_}/stop")
    finally:
        daemon.terminate()


def _files_of_trials(nni: Nni, id_: str) -> dict[str, str]:
    """Contents of the files that NNI left."""
    folder = nni.home / "nni-experiments" / id_ / "environments"
    return {str(path): path.read_text() for path in folder.glob("*/trials/*/trial.*")}


def _nni_api(daemon: Daemon, id_: str, path: str) -> Any:
    with daemon.client() as client:
        return client.get(f"/experiments/{id_}/api/v1/nni/{path}").json()
