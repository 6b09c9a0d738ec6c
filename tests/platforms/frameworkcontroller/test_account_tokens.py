"""Pods of a Framework have a token of the cluster where a barrier of NNI asks with it, or their user does."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.kubernetes.jobs.pod import PodSettings
from nni_manager.platforms.frameworkcontroller import jobs
from nni_manager.platforms.frameworkcontroller.config import FrameworkcontrollerConfig
from tests.kubernetes.test_kubernetes_names_and_pods import job

pytestmark = pytest.mark.unit

_POLICY = {"minFailedTaskCount": 1, "minSucceedTaskCount": 1}
TASK = {
    "command": "true",
    "cpuNumber": 1,
    "memorySize": 1,
    "frameworkAttemptCompletionPolicy": _POLICY,
}


def pods_of(template: dict[str, Any] | None = None, **roles: int) -> list[dict[str, Any]]:
    pods = PodSettings(platform="frameworkcontroller", channel="push", runner_map="r", template=template or {})
    told = [{**TASK, "name": name, "taskNumber": count} for name, count in roles.items()]
    config = FrameworkcontrollerConfig.model_validate({"taskRoles": told})
    made = jobs.framework(job(), jobs.roles(config, "run", lambda _: ()), pods, {}, "s")
    return [one["task"]["pod"]["spec"] for one in made["spec"]["taskRoles"]]


def test_single_task_has_no_account_token() -> None:
    [spec] = pods_of(worker=1)
    assert spec["automountServiceAccountToken"] is False


def test_account_token_of_tasks_with_a_barrier() -> None:
    assert [spec["automountServiceAccountToken"] for spec in pods_of(ps=1, worker=2)] == [True, True]
    refused = {"spec": {"automountServiceAccountToken": False}}
    assert [spec["automountServiceAccountToken"] for spec in pods_of(refused, worker=2)] == [False]


@pytest.mark.parametrize(
    ("own", "asked"),
    [({}, False), ({"serviceAccountName": "mine"}, None), ({"automountServiceAccountToken": True}, True)],
)
def test_account_token_of_a_users_framework(own: dict[str, Any], asked: bool | None) -> None:
    container = {"name": "main", "image": "i", "command": ["true"]}
    template = {"spec": {"taskRoles": [{"name": "w", "task": {"pod": {"spec": {"containers": [container], **own}}}}]}}
    pods = PodSettings(platform="frameworkcontroller", channel="push", runner_map="r")
    made = jobs.from_template(template, job(), pods, {}, "s")
    assert made["spec"]["taskRoles"][0]["task"]["pod"]["spec"].get("automountServiceAccountToken") is asked
