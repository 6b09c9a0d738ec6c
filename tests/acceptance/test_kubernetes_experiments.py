"""Experiments on a cluster, through the daemon: jobs of several pods, each channel, and nothing left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nni_manager.platform_kit.kubernetes_access import Access
from nni_manager.platform_kit.kubernetes_cluster import Cluster
from nni_manager.platform_kit.kubernetes_resource import CONFIG_MAPS, PODS, SECRETS, Resource
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
#: Channel, section, kind of job.
CASES: dict[str, tuple[str, dict[str, Any], Resource]] = {
    "workers and a parameter server": (
        "exec",
        {
            "platform": "kubeflow", "operator": "tf-operator", "apiVersion": "v1alpha2",
            "worker": {**_ROLE, "replicas": 2}, "ps": {**_ROLE, "command": "sleep 60"},
        },
        Resource("kubeflow.org", "v1", "tfjobs", "TFJob"),
    ),
    "master and worker": (
        "push",
        {
            "platform": "kubeflow", "operator": "pytorch-operator", "apiVersion": "v1", "master": _ROLE,
            "worker": _ROLE, "nniManagerIp": "127.0.0.1",
        },
        Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"),
    ),
    "framework": (
        "pull", {"platform": "frameworkcontroller", "taskRoles": [_TASK]},
        Resource("frameworkcontroller.microsoft.com", "v1", "frameworks", "Framework"),
    ),
    "adl": (
        "exec", {"platform": "adl", "dockerImage": "example/trial:1", "trialMemorySize": "64Mi"},
        Resource("adaptdl.petuum.com", "v1", "adaptdljobs", "AdaptDLJob"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_trial_has_its_own_result_and_nothing_is_left(listening: Daemon, tmp_path: Path, case: str) -> None:
    daemon, (channel, section, resource) = listening, CASES[case]
    code, mounted = tmp_path / "code", tmp_path / "mounted"
    code.mkdir()
    mounted.mkdir()
    with _cluster(tmp_path, mounted) as kubeconfig:
        service = {**section, "channel": channel, "kubeconfig": str(kubeconfig)}
        if channel == "pull":
            here = {"localMountPoint": str(mounted)}
            service["storage"] = {"storageType": "nfs", "server": "10.0.0.1", "path": "/export", **here}
        id_ = daemon.create(_config(service), code)
        daemon.wait(id_, "DONE", timeout_s=90)
        assert daemon.rows(id_, "SELECT sequence_id, status, final_value FROM trials ORDER BY sequence_id") == [
            (number, "SUCCEEDED", number) for number in range(TRIALS)
        ]
        assert set(daemon.rows(id_, "SELECT channel, number FROM attempts")) == {(channel, 1)}
        daemon.call("POST", f"/experiments/{id_}/stop")
        daemon.wait(id_, "STOPPED")
        assert asyncio.run(_left(kubeconfig, resource)) == []


@pytest.mark.parametrize("case", ["master and worker", "framework"])
def test_where_pods_do_not_reach_us_all_comes_through_the_api(listening: Daemon, tmp_path: Path, case: str) -> None:
    """Nothing is said about channels: each pod tries, and once one has tried in vain the next need not."""
    daemon, (_, section, resource) = listening, CASES[case]
    code = tmp_path / "code"
    code.mkdir()
    with _cluster(tmp_path, tmp_path) as kubeconfig:
        service = {**section, "kubeconfig": str(kubeconfig), "nniManagerIp": "127.0.0.2"}
        id_ = daemon.create(_config(service), code)
        daemon.wait(id_, "DONE", timeout_s=90)
        assert daemon.rows(id_, "SELECT sequence_id, status, final_value FROM trials ORDER BY sequence_id") == [
            (number, "SUCCEEDED", number) for number in range(TRIALS)
        ]
        assert daemon.rows(id_, "SELECT channel, number FROM attempts") == [("exec", 1)] * TRIALS
        daemon.call("POST", f"/experiments/{id_}/stop")
        daemon.wait(id_, "STOPPED")
        assert asyncio.run(_left(kubeconfig, resource)) == []


def test_where_they_do_the_same_setting_pushes(listening: Daemon, tmp_path: Path) -> None:
    daemon, (_, section, _) = listening, CASES["adl"]
    code = tmp_path / "code"
    code.mkdir()
    with _cluster(tmp_path, tmp_path) as kubeconfig:
        id_ = daemon.create(_config({**section, "kubeconfig": str(kubeconfig)}), code)
        daemon.wait(id_, "DONE", timeout_s=90)
        assert daemon.rows(id_, "SELECT channel, number FROM attempts") == [("push", 1)] * TRIALS


def _config(service: dict[str, Any]) -> dict[str, Any]:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}, "trialCommand": _COMMAND,
        "trialCodeDirectory": ".", "trialConcurrency": 2, "maxTrialNumber": TRIALS, "tuner": {"name": "Random"},
        "trainingService": service,
    }  # fmt: skip


@contextlib.contextmanager
def _cluster(folder: Path, mounted: Path) -> Iterator[Path]:
    """In a process of its own; its kubeconfig."""
    command = [
        sys.executable, "-m", "tests.fakes.kubernetes", "--folder", folder / "cluster", "--back-off", "0.1",
        "--export", f"10.0.0.1:/export={mounted}",
    ]  # fmt: skip
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env={**os.environ}) as process:
        try:
            assert process.stdout is not None
            yield Path(json.loads(process.stdout.readline())["kubeconfig"])
        finally:
            process.terminate()


async def _left(kubeconfig: Path, resource: Resource) -> list[str]:
    """Names of our objects, once what is being ended has ended."""
    cluster = Cluster("left")
    await cluster.use(Access(kubeconfig=str(kubeconfig)).to_text())
    try:
        for _ in range(100):
            kinds = (resource, PODS, SECRETS, CONFIG_MAPS)
            found = [
                one["metadata"]["name"] for kind in kinds for one in await cluster.list(kind, "nni-manager/experiment")
            ]
            if not found:
                break
            await asyncio.sleep(0.1)
        return found
    finally:
        await cluster.close()
