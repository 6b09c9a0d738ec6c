"""Experiments on a cluster, through the daemon: jobs with several pods, each channel, no leftovers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.kubernetes_cluster import BATCH_JOBS, EXPORT, SERVER, FakeCluster, of
from tests.live_daemon import Daemon, picked

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

TRIALS = 3
#: Every pod writes a result, but only the reporter's counts. Succeeds only if the code is there.
_COMMAND = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX"; cat said"""
_POD = {"cpuNumber": 1, "memorySize": "64mb", "dockerImage": "example/trial:1"}
_ROLE = {**_POD, "replicas": 1, "command": _COMMAND}
_TASK = {
    **_POD,
    "name": "worker",
    "taskNumber": 1,
    "command": _COMMAND,
    "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceedTaskCount": 1},
}
#: Channel, section.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "workers and a parameter server": (
        "exec",
        {
            "platform": "kubeflow",
            "operator": "tf-operator",
            "apiVersion": "v1alpha2",
            "worker": {**_ROLE, "replicas": 2},
            "ps": {**_ROLE, "command": "sleep 60"},
        },
    ),
    "master and worker": (
        "push",
        {
            "platform": "kubeflow",
            "operator": "pytorch-operator",
            "apiVersion": "v1",
            "master": _ROLE,
            "worker": _ROLE,
            "nniManagerIp": "127.0.0.1",
        },
    ),
    "framework": (
        "pull",
        {"platform": "frameworkcontroller", "taskRoles": [_TASK]},
    ),
    "adl": (
        "exec",
        {"platform": "adl", "dockerImage": "example/trial:1", "trialMemorySize": "64Mi"},
    ),
    "job": (
        "exec",
        {"platform": "kubernetes", "dockerImage": "example/trial:1", "trialMemorySize": "64Mi"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_trial_has_its_own_result_and_nothing_is_left(
    shared: Daemon, cluster: FakeCluster, tmp_path: Path, case: str
) -> None:
    channel, section = CASES[case]
    service = {**section, "channel": channel}
    if channel == "pull":
        here = {"localMountPoint": str(cluster.mounted)}
        service["storage"] = {"storageType": "nfs", "server": SERVER, "path": EXPORT, **here}
    id_ = _done(shared, cluster, tmp_path, service)
    assert set(picked(shared.attempts(id_), "channel", "number")) == {(channel, 1)}
    shared.call("POST", f"/experiments/{id_}/stop")
    shared.wait(id_, "STOPPED")
    assert cluster.left(id_) == []


def test_results_come_by_exec_if_pods_cannot_reach_the_manager(
    shared: Daemon, cluster: FakeCluster, tmp_path: Path
) -> None:
    """Without a channel setting each pod tries to connect; after one failure the next does not try."""
    section = {**CASES["master and worker"][1], "nniManagerIp": "127.0.0.2"}
    id_ = _done(shared, cluster, tmp_path, section)
    assert picked(shared.attempts(id_), "channel", "number") == [("exec", 1)] * TRIALS
    shared.call("POST", f"/experiments/{id_}/stop")
    shared.wait(id_, "STOPPED")
    assert cluster.left(id_) == []


def test_results_are_pushed_where_pods_reach_the_manager(shared: Daemon, cluster: FakeCluster, tmp_path: Path) -> None:
    id_ = _done(shared, cluster, tmp_path, CASES["adl"][1])
    assert picked(shared.attempts(id_), "channel", "number") == [("push", 1)] * TRIALS


def test_changed_image_is_that_of_later_trials(shared: Daemon, cluster: FakeCluster, tmp_path: Path) -> None:
    """The running trial continues with its own."""
    share = {"mountPath": "/share", "nfs": {"server": SERVER, "path": EXPORT}}
    section = {**CASES["job"][1], "volumes": [share], "kubeconfig": str(cluster.kubeconfig)}
    (code := tmp_path / "code").mkdir()
    (code / "said").touch()
    command = f"until [ -e /share/end-$NNI_TRIAL_SEQ_ID ]; do sleep 0.1; done; {_COMMAND}"
    id_ = shared.create({**_config(section), "trialCommand": command, "trialConcurrency": 1, "maxTrialNumber": 2}, code)
    assert _image_of_only_job(cluster, id_) == "example/trial:1"
    shared.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 1)
    shared.call("PATCH", f"/experiments/{id_}", json={"trainingService": {**section, "dockerImage": "example/trial:2"}})
    (cluster.mounted / "end-0").touch()
    cluster.until(lambda: _image_of_only_job(cluster, id_) == "example/trial:2")
    (cluster.mounted / "end-1").touch()
    shared.wait(id_, "DONE", timeout_s=60)
    assert picked(shared.trials(id_), "status", "attempt") == [("SUCCEEDED", 1)] * 2


def _image_of_only_job(cluster: FakeCluster, id_: str) -> str:
    jobs = cluster.until(lambda: cluster.objects(BATCH_JOBS, of(id_)))
    containers = [container for job in jobs for container in job["spec"]["template"]["spec"]["containers"]]
    return str(containers[0]["image"]) if len(containers) == 1 else ""


def _done(daemon: Daemon, cluster: FakeCluster, folder: Path, section: dict[str, Any]) -> str:
    """An experiment in which every trial reports a different result."""
    code = folder / "code"
    code.mkdir()
    (code / "said").write_text("said\n")
    id_ = daemon.create(_config({**section, "kubeconfig": str(cluster.kubeconfig)}), code)
    daemon.wait(id_, "DONE", timeout_s=90)
    assert picked(daemon.trials(id_), "sequenceId", "status", "finalValue") == [
        (number, "SUCCEEDED", number) for number in range(TRIALS)
    ]
    return id_


def _config(service: dict[str, Any]) -> dict[str, Any]:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": _COMMAND,
        "trialCodeDirectory": ".",
        "trialConcurrency": 2,
        "maxTrialNumber": TRIALS,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": service,
    }
