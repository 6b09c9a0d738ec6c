"""Frameworks of a trial, as FrameworkController wants them. Pure."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nni_manager.domain.experiment import Json
from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.api.kind import Kind
from nni_manager.kubernetes.jobs.pod import PodSettings, Role, merged, pod_template, without_account_token
from nni_manager.platforms.frameworkcontroller.config import legal_role_name
from nni_manager.platforms.frameworkcontroller.states import report

CONTAINER = "framework"
_BARRIER = "frameworkbarrier"
_BARRIER_VOLUME = "frameworkbarrier-volume"
_BARRIER_MOUNT = "/mnt/frameworkbarrier"
_FIRST_PORT = 4000
#: Nothing is tried again here: the manager does that, under another name.
_NO_RETRY: Object = {"fancyRetryPolicy": False, "maxRetryCount": 0}


def kind(settings: Json) -> Kind:
    """The kind Framework, in the version that the section asks for."""
    version = str(settings.get("apiVersion") or "")
    return Kind(
        group="frameworkcontroller.microsoft.com",
        plural="frameworks",
        kind="Framework",
        container=CONTAINER,
        read=report,
        version=version.rpartition("/")[2],
        stop={"spec": {"executionType": "Stop"}},
        operator="FrameworkController (https://github.com/microsoft/frameworkcontroller)",
    )


def roles(
    settings: Json, command: str, pull_secrets: Callable[[object], Sequence[str]]
) -> list[tuple[Role, Mapping[str, Any]]]:
    """The roles of a job, with what the config says of each. The first reports."""
    told: Sequence[Mapping[str, Any]] = settings["taskRoles"]  # type: ignore[assignment]
    ports = _ports(told)
    return [(_role(one, command, pull_secrets, number == 0, ports), one) for number, one in enumerate(told)]


def _role(
    told: Mapping[str, Any],
    command: str,
    pull_secrets: Callable[[object], Sequence[str]],
    is_first: bool,
    ports: Mapping[str, int],
) -> Role:
    own = str(told.get("command") or command)
    return Role(
        name=legal_role_name(told["name"]),
        count=int(told["taskNumber"]),
        command=with_barrier(own, ports) if ports else own,
        image=str(told["dockerImage"]),
        container=CONTAINER,
        reports=is_first,
        gpus=int(told.get("gpuNumber") or 0),
        resources={"cpu": str(told["cpuNumber"]), "memory": f"{told['memorySize']}Mi"},
        pull_secrets=pull_secrets(told.get("privateRegistryAuthPath")),
    )


def _ports(told: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The port of each role; none where a single task has nobody to wait for."""
    if sum(int(one["taskNumber"]) for one in told) == 1:
        return {}
    return {legal_role_name(one["name"]): _FIRST_PORT + number for number, one in enumerate(told)}


def with_barrier(command: str, ports: Mapping[str, int]) -> str:
    """A command that tells the tasks of each other before it runs, as NNI does."""
    exports = " ".join(f"FB_{name.upper()}_PORT={port}" for name, port in ports.items())
    return f"export {exports}; . {_BARRIER_MOUNT}/injector.sh && {{ {command}\n}}"


def framework(
    spec: JobSpec,
    wanted: Sequence[tuple[Role, Mapping[str, Any]]],
    pods: PodSettings,
    labels: Mapping[str, str],
    secret: str,
) -> Object:
    """The Framework of a job: an object with nothing but its `spec`."""
    is_alone = sum(role.count for role, _ in wanted) == 1
    task_roles = [
        {
            "name": role.name,
            "taskNumber": role.count,
            "frameworkAttemptCompletionPolicy": policy(told.get("frameworkAttemptCompletionPolicy")),
            "task": {
                "retryPolicy": dict(_NO_RETRY),
                "podGracefulDeletionTimeoutSec": 600,
                "pod": _pod(spec, role, pods, labels, secret, number, is_alone),
            },
        }
        for number, (role, told) in enumerate(wanted)
    ]
    return {"spec": {"executionType": "Start", "retryPolicy": dict(_NO_RETRY), "taskRoles": task_roles}}


def policy(told: Mapping[str, Any] | None) -> Object:
    """The completion policy that the API gets, without 0, which passes its schema and means nothing."""
    found = told or {}
    succeeded = found.get("minSucceedTaskCount", found.get("minSucceededTaskCount", -1))
    return {
        "minFailedTaskCount": int(found.get("minFailedTaskCount") or 0) or 1,
        "minSucceededTaskCount": int(succeeded or 0) or -1,
    }


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
            "automountServiceAccountToken": asked,  # the barrier asks the cluster for its framework
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
    """A pod as the controller makes it: its API is that of Kubernetes 1.16, which has no `seccompProfile`, and drops
    it."""
    found = copy.deepcopy(pod)
    spec = found["spec"]
    for one in (spec, *(spec.get("initContainers") or ()), *spec["containers"]):
        (one.get("securityContext") or {}).pop("seccompProfile", None)
    return found


# A template of the user's


def template_roles(template: Object) -> list[tuple[Role, Mapping[str, Any]]]:
    """The roles of a Framework that a file describes: one container each, whose command is the trial's."""
    found = []
    for number, told in enumerate(template["spec"]["taskRoles"]):
        container = told["task"]["pod"]["spec"]["containers"][0]
        role = Role(
            name=told["name"],
            count=int(told.get("taskNumber", 1)),
            command=shell_text(container),
            image=container["image"],
            container=container["name"],
            reports=number == 0,
        )
        found.append((role, told))
    return found


def shell_text(container: Mapping[str, Any]) -> str:
    """Shell text that runs what the container would."""
    return shlex.join([*(container.get("command") or ()), *(container.get("args") or ())])


def from_template(template: Object, spec: JobSpec, pods: PodSettings, labels: Mapping[str, str], secret: str) -> Object:
    """The user's Framework with our runner in each role; everything else stays as it was written."""
    found = copy.deepcopy(template)
    wanted = template_roles(template)
    is_alone = sum(role.count for role, _ in wanted) == 1
    found["spec"].setdefault("executionType", "Start")
    for (role, _), told in zip(wanted, found["spec"]["taskRoles"], strict=True):
        told.setdefault("taskNumber", 1)
        told["frameworkAttemptCompletionPolicy"] = policy(
            told.get("frameworkAttemptCompletionPolicy") or {"minFailedTaskCount": 1, "minSucceededTaskCount": -1}
        )
        pod = told["task"]["pod"]
        told["task"]["pod"] = _in_template(pod, pod_template(spec, role, pods, labels, secret, is_alone=is_alone), role)
    return {"spec": found["spec"]}


def _in_template(pod: Object, ours: Object, role: Role) -> Object:
    """The user's pod with what is ours: command, environment, labels, the runner's volume; where the user mounts
    something at our folder, that stays."""
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
