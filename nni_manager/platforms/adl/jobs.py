"""AdaptDLJobs of a trial, and the volume of their checkpoints. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nni_manager.domain.experiment import Json
from nni_manager.domain.job import JobSpec
from nni_manager.platform_kit.kubernetes.client import Object
from nni_manager.platform_kit.kubernetes.kind import Kind
from nni_manager.platform_kit.kubernetes.pod import PodSettings, Role, merged, pod_template
from nni_manager.platforms.adl.states import report

CONTAINER = "main"
_CHECKPOINTS, _NFS = "adaptdl-pvc", "nfs-vol"
_CHECKPOINT_PATH, _SHARE_PATH, _BOARD_PATH = "/adaptdl/checkpoint", "/adaptdl/share", "/adaptdl/tensorboard"
_ENVIRONMENT = {
    "ADAPTDL_CHECKPOINT_PATH": _CHECKPOINT_PATH,
    "ADAPTDL_SHARE_PATH": _SHARE_PATH,
    "ADAPTDL_TENSORBOARD_LOGDIR": _BOARD_PATH,
}
_DEFAULT_SIZE = "1Gi"


def kind() -> Kind:
    return Kind(
        group="adaptdl.petuum.com", plural="adaptdljobs", kind="AdaptDLJob", container=CONTAINER, read=report,
        version="v1", operator="the scheduler of AdaptDL (https://github.com/petuum/adaptdl)",
    )  # fmt: skip


def role(spec: JobSpec, settings: Json) -> Role:
    """The only role of an AdaptDLJob, whose rank 0 reports. Its GPUs are those of one replica."""
    secrets: list[Mapping[str, str]] = settings.get("imagePullSecrets") or []  # type: ignore[assignment]
    return Role(
        name="main", count=1, command=spec.command, image=str(settings["dockerImage"]), container=CONTAINER,
        reports=True, gpus=spec.gpu_number,
        resources={"cpu": str(settings["trialCpuNumber"]), "memory": str(settings["trialMemorySize"])},
        pull_secrets=[one["name"] for one in secrets],
    )  # fmt: skip


def claim_name(name: str) -> str:
    """The name of the volume claim for the checkpoints of the job `name`."""
    return f"{name}-checkpoint"


def job(spec: JobSpec, settings: Json, pods: PodSettings, labels: Mapping[str, str], secret: str, name: str) -> Object:
    """The AdaptDLJob of an attempt: an object with nothing but its `spec`."""
    is_adaptive = bool(settings.get("adaptive"))
    template = pod_template(spec, role(spec, settings), pods, labels, secret, is_alone=not is_adaptive)
    wanted: Object = {"template": merged(template, _volumes(template, settings, name), CONTAINER)}
    wanted["preemptible"] = is_adaptive
    if not is_adaptive:
        wanted |= {"minReplicas": 1, "maxReplicas": 1}
    return {"spec": wanted}


def _volumes(template: Object, settings: Json, name: str) -> Object:
    """What the pod template gets besides: volumes for checkpoints, which outlive a pod, and what the section mounts."""
    container = template["spec"]["containers"][0]
    volumes, mounts = list(template["spec"]["volumes"]), list(container["volumeMounts"])
    source: Object = {"emptyDir": {}}
    if settings.get("checkpoint"):
        source = {"persistentVolumeClaim": {"claimName": claim_name(name)}}
    volumes.append({"name": _CHECKPOINTS, **source})
    for path in (_CHECKPOINT_PATH, _SHARE_PATH, _BOARD_PATH):
        mounts.append({"name": _CHECKPOINTS, "mountPath": path, "subPath": path.lstrip("/")})
    nfs: Any = settings.get("nfs")
    if nfs:
        volumes.append({"name": _NFS, "nfs": {"server": nfs["server"], "path": nfs["path"]}})
        mounts.append({"name": _NFS, "mountPath": nfs["containerMountPath"]})
    env = [*container["env"], *({"name": key, "value": value} for key, value in _ENVIRONMENT.items())]
    return {
        "spec": {"containers": [{"name": CONTAINER, "env": env, "volumeMounts": mounts}], "volumes": volumes}
    }  # fmt: skip


def claim(settings: Json, name: str, labels: Mapping[str, str], owner: Object) -> Object | None:
    """The claim of the volume of checkpoints, which goes with its job; None without checkpoints."""
    told: Any = settings.get("checkpoint")
    if not told:
        return None
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim_name(name), "labels": dict(labels), "ownerReferences": [owner]},
        "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Filesystem", "storageClassName": told["storageClass"],
            "resources": {"requests": {"storage": told.get("storageSize") or _DEFAULT_SIZE}},
        },
    }  # fmt: skip
