"""Jobs with several pods, and jobs that their operator restarts: each is one trial with its own results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from nni_manager.kubernetes.api.names import PODS, Resource
from tests.acceptance.kubernetes_cluster import BINDINGS, FRAMEWORKS, ROLES, FakeCluster, of
from tests.live_daemon import Daemon, picked

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_POD = {"cpuNumber": 1, "memorySize": "64mb", "dockerImage": "example/trial:1"}
_FOR_EVER = "while :; do sleep 0.1; done"


def say(kind: str, value: object) -> str:
    """Shell command that reports; `value` is a shell expression."""
    return f'echo "{{\\"type\\": \\"{kind}\\", \\"value\\": {value}}}" >> "$NNI_OUTBOX"'


def create(daemon: Daemon, cluster: FakeCluster, code: Path, section: dict[str, Any], command: str = "") -> str:
    code.mkdir(exist_ok=True)
    config: dict[str, Any] = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCodeDirectory": ".",
        "maxTrialNumber": 1,
        "trialConcurrency": 1,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"kubeconfig": str(cluster.kubeconfig), "nniManagerIp": "127.0.0.1", **section},
    }
    if command:
        config["trialCommand"] = command
    return daemon.create(config, code)


def attempts(daemon: Daemon, id_: str) -> list[tuple[Any, ...]]:
    """(trial status, result, number, state) of each attempt."""
    ends = {trial["id"]: (trial["status"], trial["finalValue"]) for trial in daemon.trials(id_)}
    return [(*ends[one["trialId"]], one["number"], one["state"]) for one in daemon.attempts(id_)]


def intermediates(daemon: Daemon, id_: str) -> list[float]:
    return [result["value"] for result in daemon.results(id_, type="PERIODICAL")]


def task(name: str, command: str, *, failed: int, succeeded: int, number: int = 1) -> dict[str, Any]:
    policy = {"minFailedTaskCount": failed, "minSucceedTaskCount": succeeded}
    return {
        **_POD,
        "name": name,
        "taskNumber": number,
        "command": command,
        "frameworkAttemptCompletionPolicy": policy,
    }


def let_barriers_look(cluster: FakeCluster) -> str:
    """A service account that may get frameworks."""
    meta = {"name": "barrier"}
    rule = {"apiGroups": ["frameworkcontroller.microsoft.com"], "resources": ["frameworks"], "verbs": ["get"]}
    cluster.create(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    group = "rbac.authorization.k8s.io"
    cluster.create(ROLES, {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": [rule]})
    cluster.create(
        BINDINGS,
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "subjects": [{"kind": "ServiceAccount", "name": "barrier", "namespace": "default"}],
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "barrier"},
        },
    )
    return "barrier"


def test_failed_helper_does_not_end_the_reporter(shared: Daemon, cluster: FakeCluster, tmp_path: Path) -> None:
    """The completion policy of its role ignores the failure; the barrier has exchanged all addresses."""
    go_on = cluster.share(tmp_path / "shared") / "go-on"
    trainer = (
        f'[ -n "$FB_HELPER_ADDRESSES" ] || exit 9; {say("intermediate", 1)}; '
        f"while [ ! -e {go_on} ]; do sleep 0.05; done; {say('final', 7)}"
    )
    roles = [
        task("trainer", trainer, failed=1, succeeded=1),
        task("helper", f"{say('final', 3)}; exit 3", failed=-1, succeeded=-1, number=2),
    ]
    section = {
        "platform": "frameworkcontroller",
        "taskRoles": roles,
        "serviceAccountName": let_barriers_look(cluster),
    }
    id_ = create(shared, cluster, tmp_path / "code", section)
    cluster.until(lambda: _completed_tasks(cluster, id_, "helper") == 2)
    go_on.touch()
    shared.wait(id_, "DONE", timeout_s=60)
    ((*trial, _),) = attempts(shared, id_)  # the runner's report may arrive before the framework's
    assert trial == ["SUCCEEDED", 7, 1]
    assert intermediates(shared, id_) == [1]


def test_failed_worker_ends_the_job_with_its_reason(shared: Daemon, cluster: FakeCluster, tmp_path: Path) -> None:
    """A PyTorchJob ends with any of its pods; the master's results are kept."""
    said = cluster.share(tmp_path / "shared") / "said"
    master = f"{say('intermediate', 5)}; touch {said}; {_FOR_EVER}"
    worker = f"while [ ! -e {said} ]; do sleep 0.05; done; sleep 0.3; echo no more >&2; exit 3"
    section = {
        "platform": "kubeflow",
        "operator": "pytorch-operator",
        "apiVersion": "v1",
        "master": {**_POD, "replicas": 1, "command": master},
        "worker": {**_POD, "replicas": 1, "command": worker},
    }
    id_ = create(shared, cluster, tmp_path / "code", section)
    shared.wait(id_, "DONE", timeout_s=60)
    assert attempts(shared, id_) == [("FAILED", None, 1, "FAILED")]
    assert intermediates(shared, id_) == [5]
    ((code_of_worker, message, stderr),) = picked(shared.attempts(id_), "exitCode", "message", "stderrTail")
    assert code_of_worker == 3 and "worker-0: Error" in message and stderr == "no more\n"


def test_preempted_adaptive_job_is_one_trial(shared: Daemon, cluster: FakeCluster, tmp_path: Path) -> None:
    """The operator restarts it twice; all results count, and the manager submits no second job."""
    restarts, ran = "$ADAPTDL_NUM_RESTARTS", cluster.share(tmp_path / "shared") / "ran"
    command = (
        f"{say('intermediate', restarts)}; touch {ran}-{restarts}; "
        f"if [ {restarts} -lt 2 ]; then {_FOR_EVER}; fi; {say('final', f'$((100 + {restarts}))')}"
    )
    section = {"platform": "adl", "dockerImage": "example/trial:1", "trialMemorySize": "64Mi", "adaptive": True}
    id_ = create(shared, cluster, tmp_path / "code", section, command)
    cluster.until(Path(f"{ran}-0").exists)
    cluster.until(lambda: intermediates(shared, id_) == [0])
    meta = cluster.objects(PODS, of(id_))[0]["metadata"]
    cluster.control("preempt", namespace="default", name=meta["name"])
    cluster.until(Path(f"{ran}-1").exists)
    cluster.until(lambda: intermediates(shared, id_) == [0, 1])
    cluster.control("reallocate", namespace="default", name=meta["labels"]["nni-manager/job"], replicas=2)
    shared.wait(id_, "DONE", timeout_s=90)
    assert attempts(shared, id_) == [("SUCCEEDED", 102, 1, "SUCCEEDED")]
    assert intermediates(shared, id_) == [0, 1, 2]


@pytest.mark.parametrize("channel", ["push", "exec"])
def test_recreated_pod_is_the_same_trial(shared: Daemon, cluster: FakeCluster, tmp_path: Path, channel: str) -> None:
    """The first pod is lost silently; the report of the second pod's runner decides."""
    began = cluster.share(tmp_path / "shared") / "began"
    command = f"[ -e {began} ] || {{ touch {began}; {say('intermediate', 1)}; {_FOR_EVER}; }}; {say('final', 7)}"
    worker = {**_POD, "replicas": 1, "command": command}
    section = {
        "platform": "kubeflow",
        "operator": "tf-operator",
        "apiVersion": "v1",
        "channel": channel,
        "worker": worker,
    }
    id_ = create(shared, cluster, tmp_path / "code", section)
    shared.wait_for(id_, lambda _: intermediates(shared, id_) == [1])
    cluster.control("lose-pod", namespace="default", name=cluster.objects(PODS, of(id_))[0]["metadata"]["name"])
    shared.wait(id_, "DONE", timeout_s=60)
    assert picked(shared.trials(id_), "status", "finalValue", "attempt") == [("SUCCEEDED", 7, 1)]


def test_user_template_is_retried_by_its_operator(shared: Daemon, cluster: FakeCluster, tmp_path: Path) -> None:
    command = f"{say('intermediate', '$FC_TASK_ATTEMPT_ID')}; [ $FC_TASK_ATTEMPT_ID = 1 ] && {say('final', 11)}"
    container = {"name": "main", "image": "example/trial:1", "command": ["/bin/sh", "-c"], "args": [command]}
    template = {
        "apiVersion": "frameworkcontroller.microsoft.com/v1",
        "kind": "Framework",
        "metadata": {"name": "mine", "namespace": "default"},
        "spec": {
            "executionType": "Start",
            "taskRoles": [
                {
                    "name": "worker",
                    "taskNumber": 1,
                    "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceededTaskCount": 1},
                    "task": {
                        "retryPolicy": {"fancyRetryPolicy": False, "maxRetryCount": 2},
                        "pod": {"spec": {"restartPolicy": "Never", "containers": [container]}},
                    },
                }
            ],
        },
    }
    code = tmp_path / "code"
    code.mkdir()
    (code / "framework.yml").write_text(yaml.safe_dump(template))
    section = {"platform": "frameworkcontroller", "configPath": "framework.yml"}
    id_ = create(shared, cluster, code, section)
    shared.wait(id_, "DONE", timeout_s=60)
    assert attempts(shared, id_) == [("SUCCEEDED", 11, 1, "SUCCEEDED")]
    assert intermediates(shared, id_) == [0, 1]


def _completed_tasks(cluster: FakeCluster, id_: str, role: str) -> int:
    """Of the experiment's only framework."""
    (framework,) = cluster.objects(FRAMEWORKS, of(id_)) or ({},)
    roles = ((framework.get("status") or {}).get("attemptStatus") or {}).get("taskRoleStatuses") or []
    return sum(task["state"] == "Completed" for one in roles if one["name"] == role for task in one["taskStatuses"])
