"""Frameworks of a trial as FrameworkController expects them. Pure."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.api.cluster import Kind
from nni_manager.kubernetes.fields import ROLE_MEMORY
from nni_manager.kubernetes.jobs.pod import PodSettings, Role, merged, pod_template, without_account_token
from nni_manager.platforms.frameworkcontroller.config import FrameworkcontrollerConfig, TaskRole, legal_role_name
from nni_manager.platforms.frameworkcontroller.states import report

CONTAINER = "framework"
_BARRIER = "frameworkbarrier"
_BARRIER_VOLUME = "frameworkbarrier-volume"
_BARRIER_MOUNT = "/mnt/frameworkbarrier"
_FIRST_PORT = 4000
#: No retries here: the manager retries under another name.
_NO_RETRY: Object = {"fancyRetryPolicy": False, "maxRetryCount": 0}


def kind(config: FrameworkcontrollerConfig) -> Kind:
    """The kind Framework, in the section's version."""
    return Kind(
        group="frameworkcontroller.microsoft.com",
        plural="frameworks",
        kind="Framework",
        container=CONTAINER,
        read=report,
        version=(config.api_version or "").rpartition("/")[2],
        stop={"spec": {"executionType": "Stop"}},
        memory_field=ROLE_MEMORY,
        operator="FrameworkController (https://github.com/microsoft/frameworkcontroller)",
    )


def roles(
    config: FrameworkcontrollerConfig, command: str, pull_secrets: Callable[[str | None], Sequence[str]]
) -> list[tuple[Role, Object]]:
    """The roles of a job, each with its completion policy. The first reports."""
    told = () if is_alone(config) else config.task_roles or ()
    ports = {legal_role_name(role.name): _FIRST_PORT + number for number, role in enumerate(told)}
    return [
        (_role(role, role.command or command, pull_secrets, number == 0, ports), _policy(role))
        for number, role in enumerate(config.task_roles or ())
    ]


def _role(
    role: TaskRole,
    command: str,
    pull_secrets: Callable[[str | None], Sequence[str]],
    is_first: bool,
    ports: Mapping[str, int],
) -> Role:
    return Role(
        name=legal_role_name(role.name),
        count=role.task_number,
        command=with_barrier(command, ports) if ports else command,
        image=role.docker_image,
        container=CONTAINER,
        reports=is_first,
        gpus=role.gpu_number,
        resources={"cpu": str(role.cpu_number), "memory": f"{role.memory_size}Mi"},
        pull_secrets=pull_secrets(role.private_registry_auth_path),
    )


def is_alone(config: FrameworkcontrollerConfig) -> bool:
    """Whether a job has a single task, which needs no barrier."""
    return sum(role.task_number for role in config.task_roles or ()) == 1


def _policy(role: TaskRole) -> Object:
    told = role.framework_attempt_completion_policy
    return policy(told.min_failed_task_count, told.min_succeed_task_count)


def with_barrier(command: str, ports: Mapping[str, int]) -> str:
    """The command after a barrier that exports the addresses of all tasks, as in NNI."""
    exports = " ".join(f"FB_{name.upper()}_PORT={port}" for name, port in ports.items())
    return f"export {exports}; . {_BARRIER_MOUNT}/injector.sh && {{ {command}\n}}"


def framework(
    spec: JobSpec,
    wanted: Sequence[tuple[Role, Object]],
    pods: PodSettings,
    labels: Mapping[str, str],
    secret: str,
) -> Object:
    """The Framework of a job: only its `spec`. `wanted`: the result of `roles`."""
    is_alone = sum(role.count for role, _ in wanted) == 1
    task_roles = [
        {
            "name": role.name,
            "taskNumber": role.count,
            "frameworkAttemptCompletionPolicy": completion,
            "task": {
                "retryPolicy": dict(_NO_RETRY),
                "podGracefulDeletionTimeoutSec": 600,
                "pod": _pod(spec, role, pods, labels, secret, number, is_alone),
            },
        }
        for number, (role, completion) in enumerate(wanted)
    ]
    return {"spec": {"executionType": "Start", "retryPolicy": dict(_NO_RETRY), "taskRoles": task_roles}}


def policy(failed: int | None, succeeded: int | None) -> Object:
    """The completion policy for the API. Defaults replace 0, which the schema accepts but does not define.

    `failed`, `succeeded`: numbers of tasks that end the framework.
    """
    return {"minFailedTaskCount": failed or 1, "minSucceededTaskCount": succeeded or -1}


def _pod(
    spec: JobSpec, role: Role, pods: PodSettings, labels: Mapping[str, str], secret: str, number: int, is_alone: bool
) -> Object:
    template = pod_template(spec, role, pods, labels, secret, is_alone=is_alone)
    if is_alone:
        return template
    mount = {"name": _BARRIER_VOLUME, "mountPath": _BARRIER_MOUNT}
    asked = (pods.template.get("spec") or {}).get("automountServiceAccountToken", True)
    barrier: Object = {
        "spec": {
            "automountServiceAccountToken": asked,  # the barrier queries the cluster for its framework
            "initContainers": [
                {"name": _BARRIER, "image": "frameworkcontroller/frameworkbarrier", "volumeMounts": [mount]}
            ],
            "containers": [
                {
                    "name": CONTAINER,
                    "ports": [{"containerPort": _FIRST_PORT + number}],
                    "volumeMounts": [*template["spec"]["containers"][0]["volumeMounts"], mount],
                }
            ],
            "volumes": [*template["spec"]["volumes"], {"name": _BARRIER_VOLUME, "emptyDir": {}}],
        }
    }
    return merged(template, barrier, CONTAINER)


def without_profile(pod: Object) -> Object:
    """A pod as the controller creates it: its API is that of Kubernetes 1.16, which drops `seccompProfile`."""
    found = copy.deepcopy(pod)
    spec = found["spec"]
    for one in (spec, *(spec.get("initContainers") or ()), *spec["containers"]):
        (one.get("securityContext") or {}).pop("seccompProfile", None)
    return found


# The user's template


def template_roles(template: Object) -> list[Role]:
    """The roles of a Framework from a file: one container each, with the trial's command."""
    found = []
    for number, told in enumerate(template["spec"]["taskRoles"]):
        container = told["task"]["pod"]["spec"]["containers"][0]
        role = Role(
            name=told["name"],
            count=int(told.get("taskNumber", 1)),
            command=shlex.join([*(container.get("command") or ()), *(container.get("args") or ())]),
            image=container["image"],
            container=container["name"],
            reports=number == 0,
        )
        found.append(role)
    return found


def from_template(template: Object, spec: JobSpec, pods: PodSettings, labels: Mapping[str, str], secret: str) -> Object:
    """The user's Framework with our runner in each role; everything else is unchanged."""
    found = copy.deepcopy(template)
    wanted = template_roles(template)
    is_alone = sum(role.count for role in wanted) == 1
    found["spec"].setdefault("executionType", "Start")
    for role, told in zip(wanted, found["spec"]["taskRoles"], strict=True):
        told.setdefault("taskNumber", 1)
        told["frameworkAttemptCompletionPolicy"] = _template_policy(told)
        pod = told["task"]["pod"]
        told["task"]["pod"] = _in_template(pod, pod_template(spec, role, pods, labels, secret, is_alone=is_alone), role)
    return {"spec": found["spec"]}


def _template_policy(role: Mapping[str, Any]) -> Object:
    told = role.get("frameworkAttemptCompletionPolicy") or {}
    succeeded = told.get("minSucceedTaskCount", told.get("minSucceededTaskCount"))
    return policy(int(told.get("minFailedTaskCount") or 0), int(succeeded or 0))


def _in_template(pod: Object, ours: Object, role: Role) -> Object:
    """The user's pod with our command, environment, labels and runner volume. If the user mounts something at our
    folder, that mount stays."""
    container, own = pod["spec"]["containers"][0], ours["spec"]["containers"][0]
    container.pop("args", None)
    mounted = {one.get("mountPath") for one in container.get("volumeMounts") or ()}
    mounts = [one for one in own["volumeMounts"] if one["mountPath"] not in mounted]
    names = {one["name"] for one in mounts}
    added: Object = {
        "metadata": ours["metadata"],
        "spec": {
            "containers": [
                {
                    "name": role.container,
                    "command": own["command"],
                    "env": [*(container.get("env") or ()), *own["env"]],
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": [*(container.get("volumeMounts") or ()), *mounts],
                }
            ],
            "volumes": [
                *(pod["spec"].get("volumes") or ()),
                *(one for one in ours["spec"]["volumes"] if one["name"] in names),
            ],
        },
    }
    without_account_token(pod, pod)
    pod["spec"].setdefault("restartPolicy", "Never")
    pod["spec"].setdefault("terminationGracePeriodSeconds", ours["spec"]["terminationGracePeriodSeconds"])
    return merged(pod, added, role.container)
