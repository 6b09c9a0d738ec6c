"""Experiments on a cluster, through the daemon: jobs of several pods, each channel, and nothing left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.kubernetes_cluster import EXPORT, SERVER, fake_cluster
from tests.live_daemon import Daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

TRIALS = 3
#: Every pod says it, the one that reports is heard.
_COMMAND = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX"; echo said"""
_POD = {"cpuNumber": 1, "memorySize": "64mb", "dockerImage": "example/trial:1"}
_ROLE = {**_POD, "replicas": 1, "command": _COMMAND}
_TASK = {
    **_POD, "name": "worker", "taskNumber": 1, "command": _COMMAND,
    "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceedTaskCount": 1},
}  # fmt: skip
#: Channel, section.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "workers and a parameter server": (
        "exec",
        {
            "platform": "kubeflow", "operator": "tf-operator", "apiVersion": "v1alpha2",
            "worker": {**_ROLE, "replicas": 2}, "ps": {**_ROLE, "command": "sleep 60"},
        },
    ),
    "master and worker": (
        "push",
        {
            "platform": "kubeflow", "operator": "pytorch-operator", "apiVersion": "v1", "master": _ROLE,
            "worker": _ROLE, "nniManagerIp": "127.0.0.1",
        },
    ),
    "framework": (
        "pull", {"platform": "frameworkcontroller", "taskRoles": [_TASK]},
    ),
    "adl": (
        "exec", {"platform": "adl", "dockerImage": "example/trial:1", "trialMemorySize": "64Mi"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_trial_has_its_own_result_and_nothing_is_left(listening: Daemon, tmp_path: Path, case: str) -> None:
    daemon, (channel, section) = listening, CASES[case]
    code, mounted = tmp_path / "code", tmp_path / "mounted"
    code.mkdir()
    mounted.mkdir()
    with fake_cluster(tmp_path, mounted) as cluster:
        service = {**section, "channel": channel, "kubeconfig": str(cluster.kubeconfig)}
        if channel == "pull":
            here = {"localMountPoint": str(mounted)}
            service["storage"] = {"storageType": "nfs", "server": SERVER, "path": EXPORT, **here}
        id_ = daemon.create(_config(service), code)
        daemon.wait(id_, "DONE", timeout_s=90)
        assert daemon.rows(id_, "SELECT sequence_id, status, final_value FROM trials ORDER BY sequence_id") == [
            (number, "SUCCEEDED", number) for number in range(TRIALS)
        ]
        assert set(daemon.rows(id_, "SELECT channel, number FROM attempts")) == {(channel, 1)}
        daemon.call("POST", f"/experiments/{id_}/stop")
        daemon.wait(id_, "STOPPED")
        assert cluster.left() == []


@pytest.mark.parametrize("case", ["master and worker", "framework"])
def test_where_pods_do_not_reach_us_all_comes_through_the_api(listening: Daemon, tmp_path: Path, case: str) -> None:
    """Nothing is said about channels: each pod tries, and once one has tried in vain the next need not."""
    daemon, (_, section) = listening, CASES[case]
    code = tmp_path / "code"
    code.mkdir()
    with fake_cluster(tmp_path, tmp_path) as cluster:
        service = {**section, "kubeconfig": str(cluster.kubeconfig), "nniManagerIp": "127.0.0.2"}
        id_ = daemon.create(_config(service), code)
        daemon.wait(id_, "DONE", timeout_s=90)
        assert daemon.rows(id_, "SELECT sequence_id, status, final_value FROM trials ORDER BY sequence_id") == [
            (number, "SUCCEEDED", number) for number in range(TRIALS)
        ]
        assert daemon.rows(id_, "SELECT channel, number FROM attempts") == [("exec", 1)] * TRIALS
        daemon.call("POST", f"/experiments/{id_}/stop")
        daemon.wait(id_, "STOPPED")
        assert cluster.left() == []


def test_where_they_do_the_same_setting_pushes(listening: Daemon, tmp_path: Path) -> None:
    daemon, (_, section) = listening, CASES["adl"]
    code = tmp_path / "code"
    code.mkdir()
    with fake_cluster(tmp_path, tmp_path) as cluster:
        id_ = daemon.create(_config({**section, "kubeconfig": str(cluster.kubeconfig)}), code)
        daemon.wait(id_, "DONE", timeout_s=90)
        assert daemon.rows(id_, "SELECT channel, number FROM attempts") == [("push", 1)] * TRIALS


def _config(service: dict[str, Any]) -> dict[str, Any]:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}, "trialCommand": _COMMAND,
        "trialCodeDirectory": ".", "trialConcurrency": 2, "maxTrialNumber": TRIALS, "tuner": {"name": "Random"},
        "trainingService": service,
    }  # fmt: skip
