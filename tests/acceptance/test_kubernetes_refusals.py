"""Errors of a cluster or section are reported before anything is created: cause, field and next step."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from nni_manager.kubernetes.api.names import PODS
from tests.acceptance.kubernetes_cluster import CRDS, TFJOBS, FakeCluster, fake_cluster
from tests.live_daemon import Daemon, picked

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

_ROLE = {
    "replicas": 1,
    "command": "true",
    "cpuNumber": 1,
    "gpuNumber": 0,
    "memorySize": "64mb",
    "dockerImage": "example/trial:1",
}
_KUBEFLOW = {"platform": "kubeflow", "operator": "tf-operator", "apiVersion": "v1", "worker": _ROLE}
_POLICY = {"minFailedTaskCount": 1, "minSucceedTaskCount": 1}
_TASK = {key: value for key, value in _ROLE.items() if key != "replicas"} | {
    "name": "worker",
    "taskNumber": 1,
    "frameworkAttemptCompletionPolicy": _POLICY,
}
_FRAMEWORK = {"platform": "frameworkcontroller"}
LONG = "w" * 64
#: Error in the section → text of the refusal.
SECTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown operator": ({**_KUBEFLOW, "operator": "mpi-operator"}, r"operator.*tf-operator.*pytorch-operator"),
    "a master": ({**_KUBEFLOW, "master": _ROLE}, r"trainingService\.master.*is not valid with tf-operator; remove it"),
    "memory in gigs": (
        {**_KUBEFLOW, "worker": {**_ROLE, "memorySize": "8gigs"}},
        r"trainingService\.worker\.memorySize.*must be an amount of memory such as 8GB",
    ),
    "a long name": (
        {**_FRAMEWORK, "taskRoles": [{**_TASK, "name": LONG}]},
        r"trainingService\.taskRoles\[0\]\.name.*at most 32",
    ),
    "names that are one": (
        {**_FRAMEWORK, "taskRoles": [{**_TASK, "name": "ps-1"}, {**_TASK, "name": "PS1"}]},
        r"trainingService\.taskRoles\[1\]\.name.*like another role",
    ),
    "no legal namespace": ({**_KUBEFLOW, "namespace": "Team_A"}, r"trainingService\.namespace.*lower case"),
    "a login that is not JSON": (
        {**_KUBEFLOW, "worker": {**_ROLE, "privateRegistryAuthPath": "login"}},
        r"trainingService\.worker\.privateRegistryAuthPath.*is not JSON; use a docker config\.json",
    ),
    "no such namespace": ({**_KUBEFLOW, "namespace": "team-b"}, r"namespace: the namespace team-b does not exist"),
    "no such claim": (
        {**_KUBEFLOW, "storage": {"storageType": "pvc", "path": "/tmp", "claimName": "mine"}},
        r"storage\.claimName.*has no claim mine|has no claim mine.*storage\.claimName",
    ),
    "an account that is not there": (
        {**_FRAMEWORK, "taskRoles": [_TASK], "serviceAccountName": "nobody"},
        r"Pod: .*nobody.*not found",
    ),
    "an account that cannot start tasks": (
        {**_FRAMEWORK, "taskRoles": [{**_TASK, "taskNumber": 2}]},
        r"serviceAccountName: the service account default may not get frameworks",
    ),
    "a template that the operator refuses": (
        {**_KUBEFLOW, "podTemplate": {"spec": {"restartPolicy": "Sometimes"}}},
        r"the cluster would reject it.*Sometimes",
    ),
    "a context that is not there": ({**_KUBEFLOW, "context": "mine"}, r"kubeconfig.*context mine"),
}


def create(daemon: Daemon, folder: Path, section: dict[str, Any]) -> dict[str, Any]:
    """Error of `create`."""
    code = folder / "code"
    code.mkdir(exist_ok=True)
    (code / "login").write_text("user: me")
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCodeDirectory": ".",
        "maxTrialNumber": 1,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trialConcurrency": 1,
        "trainingService": section,
    }
    body = {"config": json.dumps(config), "directory": str(code), "environment": {}, "interpreter": sys.executable}
    with daemon.client() as client:
        answer: dict[str, Any] = client.post("/api/v1/experiments", json=body).json()
    return answer


def refusal(daemon: Daemon, cluster: FakeCluster, folder: Path, section: dict[str, Any]) -> str:
    answer = create(daemon, folder, {"kubeconfig": str(cluster.kubeconfig), **section})
    assert "id" not in answer, answer
    return str(answer)


def stop(daemon: Daemon, id_: str) -> None:
    """Remove its objects from the cluster."""
    daemon.call("POST", f"/experiments/{id_}/stop")
    daemon.wait(id_, "STOPPED")


@pytest.mark.parametrize("case", SECTIONS)
def test_unusable_section_is_refused(shared: Daemon, cluster: FakeCluster, tmp_path: Path, case: str) -> None:
    section, words = SECTIONS[case]
    said = refusal(shared, cluster, tmp_path, section)
    assert re.search(words, said), said
    assert cluster.left() == []


def test_user_without_rights_is_refused(shared: Daemon, cluster: FakeCluster, tmp_path: Path) -> None:
    said = refusal(shared, cluster, tmp_path, {**_KUBEFLOW, "kubeconfig": str(cluster.user(tmp_path, "nobody"))})
    for words in ("create tfjobs", "list pods", "create secrets", "grant", "RoleBinding"):
        assert words in said, said
    wrong = refusal(
        shared, cluster, tmp_path, {**_KUBEFLOW, "kubeconfig": str(cluster.with_token(tmp_path, "wrong", "a-stranger"))}
    )
    assert "refuses the credentials of the kubeconfig" in wrong and "log in again" in wrong
    assert cluster.left() == []


def test_cluster_without_the_operator_is_refused(shared: Daemon, tmp_path: Path) -> None:
    with fake_cluster(tmp_path, tmp_path) as cluster:
        cluster.remove(CRDS, "tfjobs.kubeflow.org")
        said = refusal(shared, cluster, tmp_path, _KUBEFLOW)
        assert "the cluster has no kind TFJob (tfjobs.kubeflow.org); install Kubeflow's training operator" in said, said
        assert cluster.left() == []


def test_unknown_pod_field_is_a_warning(shared: Daemon, cluster: FakeCluster, tmp_path: Path) -> None:
    """The cluster would drop the field silently."""
    section = {**_KUBEFLOW, "podTemplate": {"spec": {"tolerationz": []}}, "kubeconfig": str(cluster.kubeconfig)}
    answer = create(shared, tmp_path, section)
    (warning,) = answer["warnings"]
    assert "podTemplate" in warning["message"] and "tolerationz" in warning["message"], warning
    stop(shared, answer["id"])


def test_pod_security_of_the_namespace_is_named(shared: Daemon, cluster: FakeCluster, tmp_path: Path) -> None:
    """It is reported before the first job, and `podTemplate` can satisfy it."""
    meta = {"name": "restricted", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    cluster.create_at("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    section = {**_KUBEFLOW, "namespace": "restricted", "channel": "exec", "kubeconfig": str(cluster.kubeconfig)}
    said = refusal(shared, cluster, tmp_path, section)
    assert "violates PodSecurity" in said and "securityContext" in said and "podTemplate" in said, said
    container = {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
    pod = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    template = {"spec": {"securityContext": pod, "containers": [container]}}
    id_ = create(shared, tmp_path, {**section, "podTemplate": template})["id"]
    shared.wait(id_, "DONE", timeout_s=60)
    assert picked(shared.trials(id_), "status") == [("SUCCEEDED",)]
    stop(shared, id_)


def test_unpullable_image_is_a_wait_reason(shared: Daemon, cluster: FakeCluster, tmp_path: Path) -> None:
    """The waiting trial states the reason, and leaves nothing."""
    cluster.control("break_image", pattern="example/nowhere", error="repository does not exist")
    role = {**_ROLE, "dockerImage": "example/nowhere:1"}
    section = {**_KUBEFLOW, "worker": role, "kubeconfig": str(cluster.kubeconfig), "channel": "exec"}
    id_ = create(shared, tmp_path, section)["id"]

    def wait() -> Any:
        (trial,) = shared.call("GET", f"/experiments/{id_}/trials")["trials"] or [{}]
        told = trial.get("wait") or {}
        return told if told.get("code") == "IMAGE" else None

    found = cluster.until(wait)
    assert "image example/nowhere:1" in found["sentence"] and "repository does not exist" in found["sentence"]
    assert cluster.objects(TFJOBS) and cluster.objects(PODS)
    stop(shared, id_)
    assert cluster.left() == []
