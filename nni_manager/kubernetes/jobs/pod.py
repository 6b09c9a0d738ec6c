"""The pod template of one role: the runner around the role's command, resources, volumes, and the user's additions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.api.names import REPORTS
from nni_manager.platform_kit.payload import checkpoint_beside
from nni_manager.shared_storage.storage_folders import experiment_folder
from trial_runner import protocol

#: Paths of the volume, as in NNI, and of the runner in the pod.
MOUNT = "/tmp/mount"  # noqa: S108 - a path in a container
RUNNER_MOUNT = "/nni-manager"
RUNNER_FILE = "runner.pyz"
WORK_VOLUME = "nni-vol"
RUNNER_VOLUME = "nni-runner"
TOKEN_KEY = "token"  # noqa: S105 - a name, no token
#: Fields of a pod with which its user requests a service account.
_ASKING = frozenset({"serviceAccountName", "serviceAccount", "automountServiceAccountToken"})
_REFERENCE = re.compile(r"\$\([-._a-zA-Z][-._a-zA-Z0-9]*\)")
#: Seconds, in addition to the trial's grace period, for the pod to report its end.
DELIVERY_S = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One kind of container of a job, whatever its platform calls it."""

    name: str
    #: Number of pods.
    count: int
    command: str
    image: str
    #: The container's name: `tensorflow`, `pytorch`, …, as the operator requires.
    container: str
    #: Its first pod reports.
    reports: bool
    #: None: GPUs are neither requested nor hidden.
    gpus: int | None = None
    #: Kubernetes quantities: ``cpu``, ``memory``.
    resources: Mapping[str, str] = field(default_factory=dict)
    #: Names of Secrets with registry logins.
    pull_secrets: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """The settings that all pods of one service share."""

    #: The value of `NNI_PLATFORM` in trials.
    platform: str
    #: push, push-or-exec, pull or exec.
    channel: str
    #: Name of the ConfigMap with the runner.
    runner_map: str
    #: The volume at `MOUNT`, without its name; None: an empty volume that is deleted with the pod.
    storage: Object | None = None
    #: Another address of the manager, for pods that choose.
    own_address: str = ""
    gpu_resource: str = "nvidia.com/gpu"
    priority_class: str = ""
    service_account: str = ""
    #: The packed code on the storage, as pods see it; empty: it is sent otherwise.
    code_archive: str = ""
    #: Its SHA-256, in hex.
    code_sha256: str = ""
    #: Folder of the code in the image; empty: the code is sent.
    code_in_image: str = ""
    #: The user's labels and annotations.
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    #: A pod template, which is merged last.
    template: Object = field(default_factory=dict)


def system_directory(spec: JobSpec) -> str:
    """The attempt's folder, as its pods see it."""
    return f"{MOUNT}/{storage_folder(spec)}"


def storage_folder(spec: JobSpec) -> str:
    """The attempt's folder, relative to the storage."""
    attempt = f"-{spec.attempt}" if spec.attempt > 1 else ""
    return f"nni/{experiment_folder(spec.experiment_id, spec.storage_key)}/{spec.trial_id}{attempt}"


def pod_template(
    spec: JobSpec, role: Role, settings: PodSettings, labels: Mapping[str, str], secret: str, *, is_alone: bool = False
) -> Object:
    """The pod template of a role. `secret`: the Secret with the runner's token; `is_alone`: the job has no other
    pod."""
    wanted = {**role.resources, **({settings.gpu_resource: str(role.gpus)} if role.gpus else {})}
    container: Object = {
        "name": role.container,
        "image": role.image,
        "command": ["python3", f"{RUNNER_MOUNT}/{RUNNER_FILE}"],
        "env": environment(spec, role, settings, secret, is_alone=is_alone),
        "resources": {"requests": dict(wanted), "limits": dict(wanted)} if wanted else {},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": WORK_VOLUME, "mountPath": MOUNT},
            {"name": RUNNER_VOLUME, "mountPath": RUNNER_MOUNT, "readOnly": True},
        ],
    }
    pod: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": round(spec.grace_period_s) + DELIVERY_S,
        "containers": [container],
        "volumes": [
            {"name": WORK_VOLUME, **(settings.storage or {"emptyDir": {}})},
            {"name": RUNNER_VOLUME, "configMap": {"name": settings.runner_map}},
        ],
    }
    if role.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in role.pull_secrets]
    if settings.priority_class:
        pod["priorityClassName"] = settings.priority_class
    if settings.service_account:
        pod["serviceAccountName"] = settings.service_account
    reports = {REPORTS: "first"} if role.reports else {}
    metadata: Object = {"labels": {**settings.labels, **labels, **reports}}
    if settings.annotations:
        metadata["annotations"] = dict(settings.annotations)
    template: Object = {"metadata": metadata, "spec": pod}
    return without_account_token(merged(template, settings.template, role.container), settings.template)


def without_account_token(pod: Object, own: Object) -> Object:
    """The pod without a service account token, which would give a trial's code access to the API; unless `own`, the
    user's pod template, sets an account or `automountServiceAccountToken`."""
    if _ASKING.isdisjoint(own.get("spec") or {}):
        pod["spec"]["automountServiceAccountToken"] = False
    return pod


def environment(
    spec: JobSpec, role: Role, settings: PodSettings, secret: str, *, is_alone: bool = False
) -> list[Object]:
    """The environment of the runner. Its token is in a Secret, as the right to read pods does not include Secrets."""
    is_heard = settings.channel in (protocol.PUSH, protocol.PUSH_OR_EXEC)
    values = {
        protocol.ENV_COMMAND: role.command if role.command == spec.command else spec.prelude + role.command,
        protocol.ENV_GRACE_S: f"{spec.grace_period_s:g}",
        **(_addresses(spec, settings.own_address) if is_heard else {}),
        **spec.protocol_environment,
        protocol.ENV_PLATFORM: settings.platform,
        protocol.ENV_SYSTEM_DIR: system_directory(spec),
        protocol.ENV_CHECKPOINT_DIR: checkpoint_beside(system_directory(spec)),
        protocol.ENV_CHANNEL: settings.channel,
        protocol.ENV_REPORTER: "1" if role.reports else "0",
        **_code(spec, settings),
        **({} if is_alone else {protocol.ENV_ROLE: role.name}),
        **({protocol.ENV_GPUS: ""} if role.gpus == 0 else {}),
    }
    # Kubernetes substitutes ``$(NAME)``, which a command may contain, and leaves ``$$(NAME)``
    literal = {name: _REFERENCE.sub(r"$\g<0>", value) for name, value in values.items()}
    found: list[Object] = [{"name": name, "value": value} for name, value in literal.items()]
    if is_heard:
        reference = {"secretKeyRef": {"name": secret, "key": TOKEN_KEY}}
        found.append({"name": protocol.ENV_TOKEN, "valueFrom": reference})
    return found


def _addresses(spec: JobSpec, own_address: str) -> dict[str, str]:
    """The variables with the manager's addresses and the certificates to trust."""
    told = {name: value for name, value in spec.runner_environment.items() if name != protocol.ENV_TOKEN}
    if own_address and (url := told.get(protocol.ENV_MANAGER_URL)):
        parts = urlsplit(url)
        host = f"[{own_address}]" if ":" in own_address else own_address
        other = urlunsplit(parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host))
        told[protocol.ENV_MANAGER_URL] = " ".join(dict.fromkeys((url, other)))
    return told


def _code(spec: JobSpec, settings: PodSettings) -> dict[str, str]:
    if settings.code_in_image:
        return {protocol.ENV_CODE: "present", protocol.ENV_CODE_DIR: settings.code_in_image}
    if settings.channel == protocol.PULL:
        record = f"{system_directory(spec)}/{protocol.PARAMETER_FILE}"
        return {
            protocol.ENV_CODE: "present",
            protocol.ENV_CODE_ARCHIVE: settings.code_archive,
            protocol.ENV_CODE_SHA256: settings.code_sha256,
            protocol.ENV_RECORD: record,
        }
    return {protocol.ENV_CODE: "present" if settings.channel == protocol.EXEC else "fetch"}


def merged(template: Object, own: Object, container: str) -> Object:
    """A template with `own` merged over it, as a strategic merge.

    Named list entries are merged by name; a container without a name is ours.
    """
    containers = (own.get("spec") or {}).get("containers") or ()
    named = [{"name": container, **one} for one in containers]
    own = {**own, "spec": {**own.get("spec", {}), "containers": named}} if containers else own
    found: Object = _merge(template, own)
    return found


def _merge(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _merge(old[key], value) if key in old else value for key, value in new.items()}}
    if (
        isinstance(old, list)
        and isinstance(new, list)
        and all(isinstance(one, dict) and "name" in one for one in [*old, *new])
    ):
        by_name = {one["name"]: one for one in new}
        known = {one["name"] for one in old}
        changed = [_merge(one, by_name[one["name"]]) if one["name"] in by_name else one for one in old]
        return [*changed, *(one for one in new if one["name"] not in known)]
    return new
