"""NNI's API of a real daemon, below an experiment's prefix: the contract of a replacement."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.live_daemon import Daemon, running_daemon
from tests.waiting import until

pytestmark = pytest.mark.acceptance

#: The second trial fails after its final result; the results of the others contain a value that JSON lacks.
TRIAL = """
echo '{"type": "intermediate", "value": 0.25}' >> "$NNI_OUTBOX"
echo '{"type": "intermediate", "value": 0.5}' >> "$NNI_OUTBOX"
echo '{"type": "final", "value": {"default": 1.5, "loss": NaN}}' >> "$NNI_OUTBOX"
[ "$NNI_TRIAL_SEQ_ID" != 1 ]
"""
RUN_ON = "echo running; exec sleep 1000"
READS = (
    "check-status",
    "experiment",
    "experiment-metadata",
    "experiments-info",
    "job-statistics",
    "trial-jobs",
    "metric-data",
    "metric-data/",
    "metric-data-latest",
    "metric-data-range/0/3",
    "export-data",
    "experiment/imported-data",
    "tensorboard-tasks",
)
METRIC_KEYS = {"timestamp", "trialJobId", "parameterId", "type", "sequence", "data"}
RECORD_KEYS = {
    "parameter_id",
    "parameter_source",
    "parameters",
    "parameter_index",
    "placement_constraint",
    "version_info",
}


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon with a service that the test stops and restarts."""
    with running_daemon(tmp_path, "--port", "0") as daemon:
        yield daemon


@contextmanager
def nni(daemon: Daemon, id_: str) -> Iterator[httpx.Client]:
    """NNI's API of an experiment, over the service."""
    (address,) = [
        listener["address"] for listener in daemon.call("GET", "/daemon")["listeners"] if listener["kind"] == "service"
    ]
    with httpx.Client(base_url=f"{address}/experiments/{id_}/api/v1/nni/", timeout=30, trust_env=False) as client:
        yield client


def create(daemon: Daemon, command: str, **fields: Any) -> str:
    code = daemon.data.parent / "code"
    code.mkdir(exist_ok=True)
    config = {
        "experimentName": "checked",
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": command,
        "trialCodeDirectory": str(code),
        "trialConcurrency": 2,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "local"},
        **fields,
    }
    return daemon.create(config, code)


def status_of(client: httpx.Client) -> str:
    return str(client.get("check-status").json()["status"])


def test_nni_answers_have_the_fields_that_clients_read(shared: Daemon, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    id_ = create(shared, f"while ! [ -e '{go_on}' ]; do sleep 0.02; done\n{TRIAL}", maxTrialNumber=4)
    shared.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 2)
    with nni(shared, id_) as client:
        own = client.post("trial-jobs", json={"x": 0.125})
        go_on.touch()
        shared.wait(id_, "DONE")
        refused = client.post("trial-jobs", json={"x": 0.125})
        found = {path: client.get(path).json() for path in READS}
        version = client.get("version").text
    assert own.json() == {"sequenceId": 2}
    assert refused.status_code == 409 and "maxTrialNumber" in refused.json()["error"]
    assert found["check-status"] == {"status": "DONE", "errors": []}
    assert len(version.split(".")) == 3
    assert not any(isinstance(answer, dict) and "error" in answer for answer in found.values())
    _check_profile(found["experiment"], shared.data / id_)
    _check_trials(found["trial-jobs"])
    _check_metrics(found["metric-data"])
    _check_export(found["export-data"], found["trial-jobs"])
    assert found["metric-data/"] == found["metric-data"] == found["metric-data-range/0/3"]
    counts = {one["trialJobStatus"]: one["trialJobNumber"] for one in found["job-statistics"]}
    assert counts == {"SUCCEEDED": 3, "FAILED": 1}
    assert found["experiment-metadata"] in found["experiments-info"]


def _check_profile(profile: dict[str, Any], folder: Path) -> None:
    assert set(profile) == {
        "params",
        "id",
        "execDuration",
        "logDir",
        "startTime",
        "endTime",
        "nextSequenceId",
        "revision",
    }
    assert profile["logDir"] == str(folder) and profile["nextSequenceId"] == 4
    assert isinstance(profile["execDuration"], int) and profile["startTime"] < profile["endTime"]
    assert None not in profile["params"].values() and "maxExperimentDuration" not in profile["params"]


def _check_trials(trials: list[dict[str, Any]]) -> None:
    assert [trial["sequenceId"] for trial in trials] == [0, 1, 2, 3]
    assert all(None not in trial.values() for trial in trials)
    for trial in trials:
        assert isinstance(trial["hyperParameters"], list)
        (record,) = map(json.loads, trial["hyperParameters"])
        assert set(record) <= RECORD_KEYS and record["parameter_index"] == 0
        assert ("finalMetricData" in trial) == (trial["status"] == "SUCCEEDED") == ("stderrPath" not in trial)
        assert Path(trial["logPath"]).is_dir() and trial["startTime"] <= trial["endTime"]
    assert trials[1]["status"] == "FAILED" and Path(trials[1]["stderrPath"]).is_file()


def _check_metrics(metrics: list[dict[str, Any]]) -> None:
    assert len(metrics) == 12 and all(set(metric) == METRIC_KEYS for metric in metrics)
    ids = [metric["parameterId"] for metric in metrics]
    assert set(map(type, ids)) == {str, type(None)} and ids.count(None) == 3
    for metric in metrics:
        value = json.loads(json.loads(metric["data"]))
        if metric["type"] == "FINAL":
            assert value["default"] == 1.5 and math.isnan(value["loss"]) and metric["sequence"] == 0
        else:
            assert value == (metric["sequence"] + 1) / 4


def _check_export(export: list[dict[str, Any]], trials: list[dict[str, Any]]) -> None:
    assert [set(one) for one in export] == [{"parameter", "value", "trialJobId"}] * 3
    records = {trial["trialJobId"]: json.loads(trial["hyperParameters"][0]) for trial in trials}
    for one in export:
        assert one["parameter"] == records[one["trialJobId"]]["parameters"]
        assert json.loads(one["value"])["default"] == 1.5


def test_delete_answers_first_and_leaves_nothing_running(shared: Daemon) -> None:
    id_ = create(shared, RUN_ON)
    shared.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 2)
    with nni(shared, id_) as client:
        answer = client.delete("experiment")
        assert (answer.status_code, answer.content) == (200, b"")
        until(lambda: status_of(client) == "STOPPED")
        assert {trial["status"] for trial in client.get("trial-jobs").json()} == {"USER_CANCELED"}
        refused = client.post("trial-jobs", json={"x": 1})
        assert refused.status_code == 409 and "resume" in refused.json()["error"]


def test_terminated_daemon_leaves_trials_to_the_next(mortal: Daemon) -> None:
    id_ = create(mortal, RUN_ON)
    mortal.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 2)
    with nni(mortal, id_) as client:
        before = client.get("trial-jobs").json()
        pid = client.get("experiment-metadata").json()["pid"]
    assert mortal.terminate() == 0
    until(lambda: not psutil.pid_exists(pid))
    mortal.start("--port", "0")
    with nni(mortal, id_) as client:
        until(lambda: client.get("check-status").text.startswith("{"))
        assert status_of(client) == "RUNNING"
        until(lambda: client.get("trial-jobs").json() == before)


def test_killed_daemon_leaves_no_process_that_clients_await(mortal: Daemon) -> None:
    id_ = create(mortal, RUN_ON)
    with nni(mortal, id_) as client:
        pid = client.get("experiment-metadata").json()["pid"]
        assert psutil.pid_exists(pid)
    mortal.kill()
    until(lambda: not psutil.pid_exists(pid))
    mortal.start("--port", "0")


def test_failed_experiment_is_still_served(shared: Daemon) -> None:
    outdated = {"platform": "scripted", "trials": [{"runnerVersion": "0.5.0"}]}
    id_ = create(shared, "true", trainingService=outdated)
    shared.wait(id_, "ERROR")
    with nni(shared, id_) as client:
        found = client.get("check-status").json()
        assert found["status"] == "ERROR" and "0.5.0" in found["errors"][0]
        assert "endTime" in client.get("experiment").json()
        assert client.get("trial-jobs").json()


def test_trial_is_killed_and_its_files_are_read(shared: Daemon) -> None:
    id_ = create(shared, RUN_ON, trialConcurrency=1, maxTrialNumber=1)
    shared.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 1)
    with nni(shared, id_) as client:
        (trial,) = client.get("trial-jobs").json()
        file = f"trial-file/{trial['trialJobId']}"
        until(lambda: client.get(f"{file}/stdout").text == "running\n")
        assert client.delete(f"trial-jobs/{trial['trialJobId']}").status_code == 200
        (ended,) = client.get("trial-jobs").json()
        assert ended["status"] == "USER_CANCELED" and ended["endTime"] >= ended["startTime"]
        assert client.get(f"{file}/stderr").text == "stderr is empty."
        assert client.get(f"{file}/..%2Fdb%2Fnni.sqlite").status_code == 404
        log = client.get(f"{str(client.base_url).partition('/api/')[0]}/logs/nnimanager.log")
        assert log.status_code == 200 and trial["trialJobId"] in log.text


def test_bad_calls_get_a_client_error(shared: Daemon) -> None:
    id_ = create(shared, RUN_ON, maxTrialNumber=9)
    bad = [
        ("PUT", "experiment", b"{}", 400),
        ("PUT", "experiment?update_type=X", b"{}", 400),
        ("PUT", "experiment?update_type=SEARCH_SPACE", b"{", 400),
        ("POST", "trial-jobs", b"\x00", 400),
        ("POST", "experiment/import-data", b"7", 400),
        ("DELETE", "trial-jobs/zzzzz", b"", 404),
        ("GET", "trial-jobs/zzzzz", b"", 404),
        ("GET", "nonsense", b"", 404),
        ("POST", "nonsense", b"", 404),
        ("POST", "tensorboard", b'{"trials": "abcde"}', 404),
        ("POST", "tensorboard", b"7", 400),
        ("PUT", "experiment/cluster-metadata", b"{", 200),
    ]
    with nni(shared, id_) as client:
        for method, path, body, status in bad:
            answer = client.request(method, path, content=body)
            assert answer.status_code == status, (method, path, answer.text)
            assert status == 200 or list(answer.json()) == ["error"]
        assert status_of(client) == "RUNNING"
