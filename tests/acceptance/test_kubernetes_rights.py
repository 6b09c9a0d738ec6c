"""The documented rights of each platform are sufficient, from the first check to the last removal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.kubernetes_cluster import BINDINGS, ROLES, FakeCluster
from tests.live_daemon import Daemon, picked

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

_REPORT = 'echo "{\\"type\\": \\"final\\", \\"value\\": 1}" >> "$NNI_OUTBOX"'
_POD = {"cpuNumber": 1, "memorySize": "64mb", "dockerImage": "example/trial:1", "command": _REPORT}
_TASK = {
    **_POD,
    "name": "worker",
    "taskNumber": 1,
    "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceedTaskCount": 1},
}
_JOB_VERBS = ["list", "watch", "get", "create", "delete"]
#: Section, and group, plural and verbs of its jobs.
SECTIONS: dict[str, tuple[dict[str, Any], str, str, list[str]]] = {
    "kubeflow": (
        {"platform": "kubeflow", "operator": "tf-operator", "apiVersion": "v1", "worker": {**_POD, "replicas": 1}},
        "kubeflow.org",
        "tfjobs",
        _JOB_VERBS,
    ),
    "frameworkcontroller": (
        {"platform": "frameworkcontroller", "taskRoles": [_TASK]},
        "frameworkcontroller.microsoft.com",
        "frameworks",
        [*_JOB_VERBS, "patch"],
    ),
    "adl": (
        {"platform": "adl", "dockerImage": "example/trial:1", "trialCommand": _REPORT},
        "adaptdl.petuum.com",
        "adaptdljobs",
        _JOB_VERBS,
    ),
    "kubernetes": (
        {"platform": "kubernetes", "dockerImage": "example/trial:1", "trialCommand": _REPORT},
        "batch",
        "jobs",
        _JOB_VERBS,
    ),
}


def with_rights(cluster: FakeCluster, folder: Path, name: str, rules: list[dict[str, Any]]) -> Path:
    """The kubeconfig of a user with only these rights."""
    group, meta = "rbac.authorization.k8s.io", {"name": name}
    cluster.create(ROLES, {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules})
    subject = {"kind": "User", "name": name, "apiGroup": group}
    role = {"apiGroup": group, "kind": "Role", "name": name}
    binding = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": meta}
    cluster.create(BINDINGS, {**binding, "subjects": [subject], "roleRef": role})
    return cluster.user(folder, name)


@pytest.mark.parametrize("channel", ["push", "exec"])
@pytest.mark.parametrize("platform", SECTIONS)
def test_documented_rights_are_enough(
    shared: Daemon, cluster: FakeCluster, tmp_path: Path, platform: str, channel: str
) -> None:
    section, group, plural, verbs = SECTIONS[platform]
    code = tmp_path / "code"
    code.mkdir()
    rules = [
        {"apiGroups": [group], "resources": [plural], "verbs": verbs},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["list", "create", "delete"]},
    ]
    if channel == "exec":
        rules.append({"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]})
        rules[2]["verbs"] = [*rules[2]["verbs"], "get"]
    kubeconfig = with_rights(cluster, tmp_path, f"{platform}-{channel}", rules)
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCodeDirectory": ".",
        "maxTrialNumber": 2,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trialConcurrency": 2,
        # with a separate login another lease could hide a missing right
        "trainingService": {**section, "channel": channel, "kubeconfig": str(kubeconfig), "nniManagerIp": "127.0.0.1"},
    }
    id_ = shared.create(config, code)
    warnings = [one["message"] for one in shared.status(id_)["warnings"]]
    assert all("events" in one or "pods/log" in one for one in warnings), warnings
    shared.wait(id_, "DONE", timeout_s=60)
    assert picked(shared.trials(id_), "status", "finalValue") == [("SUCCEEDED", 1)] * 2
    shared.call("POST", f"/experiments/{id_}/stop")
    shared.wait(id_, "STOPPED")
    assert cluster.left(id_) == []
    shared.call("DELETE", f"/experiments/{id_}")
