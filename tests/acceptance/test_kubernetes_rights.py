"""Exactly the rights that the platforms' pages ask for are enough, from the first look to the last removal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.kubernetes_cluster import BINDINGS, ROLES, FakeCluster, fake_cluster
from tests.live_daemon import Daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

_REPORT = 'echo "{\\"type\\": \\"final\\", \\"value\\": 1}" >> "$NNI_OUTBOX"'
_POD = {"cpuNumber": 1, "memorySize": "64mb", "dockerImage": "example/trial:1", "command": _REPORT}
_TASK = {
    **_POD, "name": "worker", "taskNumber": 1,
    "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceedTaskCount": 1},
}  # fmt: skip
_JOB_VERBS = ["list", "watch", "get", "create", "delete"]
#: Section, and its job's group, plural and verbs.
SECTIONS: dict[str, tuple[dict[str, Any], str, str, list[str]]] = {
    "kubeflow": (
        {"platform": "kubeflow", "operator": "tf-operator", "apiVersion": "v1", "worker": {**_POD, "replicas": 1}},
        "kubeflow.org", "tfjobs", _JOB_VERBS,
    ),
    "frameworkcontroller": (
        {"platform": "frameworkcontroller", "taskRoles": [_TASK]},
        "frameworkcontroller.microsoft.com", "frameworks", [*_JOB_VERBS, "patch"],
    ),
    "adl": (
        {"platform": "adl", "dockerImage": "example/trial:1", "trialCommand": _REPORT},
        "adaptdl.petuum.com", "adaptdljobs", _JOB_VERBS,
    ),
}  # fmt: skip


def with_rights(cluster: FakeCluster, folder: Path, rules: list[dict[str, Any]]) -> Path:
    """The kubeconfig of a user who has these alone."""
    token = cluster.control("user", name="alice")["token"]
    group, meta = "rbac.authorization.k8s.io", {"name": "nni"}
    cluster.create(ROLES, {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules})
    subject = {"kind": "User", "name": "alice", "apiGroup": group}
    role = {"apiGroup": group, "kind": "Role", "name": "nni"}
    binding = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": meta}
    cluster.create(BINDINGS, {**binding, "subjects": [subject], "roleRef": role})
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = folder / "kubeconfig-of-alice"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.parametrize("channel", ["push", "exec"])
@pytest.mark.parametrize("platform", SECTIONS)
def test_what_is_asked_for_is_enough(listening: Daemon, tmp_path: Path, platform: str, channel: str) -> None:
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
    with fake_cluster(tmp_path, tmp_path) as cluster:
        kubeconfig = with_rights(cluster, tmp_path, rules)
        config = {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}, "trialCodeDirectory": ".",
            "maxTrialNumber": 2, "tuner": {"name": "Random"}, "trialConcurrency": 2,
            "trainingService": {
                **section, "channel": channel, "kubeconfig": str(kubeconfig), "nniManagerIp": "127.0.0.1",
            },
        }  # fmt: skip
        id_ = listening.create(config, code)
        warnings = [one["message"] for one in listening.status(id_)["warnings"]]
        assert all("events" in one or "pods/log" in one for one in warnings), warnings
        listening.wait(id_, "DONE", timeout_s=60)
        assert listening.rows(id_, "SELECT status, final_value FROM trials") == [("SUCCEEDED", 1)] * 2
        listening.call("POST", f"/experiments/{id_}/stop")
        listening.wait(id_, "STOPPED")
        assert cluster.left() == []
