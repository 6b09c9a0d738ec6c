"""The adapter of AdaptDL: trials run as AdaptDLJobs; adaptive ones gain and lose replicas while they run."""

from __future__ import annotations

from collections.abc import Mapping

from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.api.cluster import Cluster, Kind
from nni_manager.kubernetes.api.names import CLAIMS
from nni_manager.kubernetes.jobs.cluster_objects import ClusterObjects, owner
from nni_manager.kubernetes.jobs.pod import PodSettings, Role, merged, pod_template
from nni_manager.kubernetes.platform import KubernetesPlatform
from nni_manager.kubernetes.preflight import secrets_there, storage_class_there
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platforms.adl.config import AdlConfig, Checkpoint
from nni_manager.platforms.adl.states import report


class AdlPlatform(KubernetesPlatform[AdlConfig]):
    """The adapter of `adl`: one AdaptDLJob for every attempt.

    AdaptDL's scheduler restarts adaptive jobs from checkpoints.
    """

    changeable = KubernetesPlatform.changeable | frozenset(
        "dockerImage trialCpuNumber trialMemorySize imagePullSecrets".split()
    )

    @classmethod
    def restarts(cls, config: AdlConfig) -> bool:
        return config.adaptive

    @classmethod
    def sends_code(cls, config: AdlConfig) -> bool:
        return not config.trial_code_directory

    def job_kind(self) -> Kind:
        return _KIND

    def manifest(self, spec: JobSpec, name: str, labels: dict[str, str], service: ClusterObjects) -> Object:
        pods = service.pods(code_in_image=self.config.trial_code_directory or "")
        return job(spec, self.config, pods, labels, service.secret_name(name), name)

    async def look_further(self, cluster: Cluster) -> list[PreflightFinding]:
        found = await secrets_there(cluster, self.config.secret_names)
        if self.config.checkpoint is not None:
            if not await cluster.may("create", CLAIMS):
                sentence = f"the account may not create persistentvolumeclaims in namespace {cluster.namespace}"
                fix = "ask for the right to create them, or remove checkpoint"
                found.append(PreflightFinding(Severity.WRONG, f"rights: {CLAIMS.plural}", sentence, fix))
            found += await storage_class_there(cluster, self.config.checkpoint.storage_class)
        return found

    async def on_created(self, cluster: Cluster, created: Object, spec: JobSpec, service: ClusterObjects) -> None:
        await super().on_created(cluster, created, spec, service)
        if self.config.checkpoint is not None:
            await service.put(CLAIMS, claim(self.config.checkpoint, created))


CONTAINER = "main"
_CHECKPOINTS, _NFS = "adaptdl-pvc", "nfs-vol"
_CHECKPOINT_PATH, _SHARE_PATH, _BOARD_PATH = "/adaptdl/checkpoint", "/adaptdl/share", "/adaptdl/tensorboard"
_ENVIRONMENT = {
    "ADAPTDL_CHECKPOINT_PATH": _CHECKPOINT_PATH,
    "ADAPTDL_SHARE_PATH": _SHARE_PATH,
    "ADAPTDL_TENSORBOARD_LOGDIR": _BOARD_PATH,
}


_KIND = Kind(
    group="adaptdl.petuum.com",
    plural="adaptdljobs",
    kind="AdaptDLJob",
    container=CONTAINER,
    read=report,
    version="v1",
    operator="the scheduler of AdaptDL (https://github.com/petuum/adaptdl)",
)


def role(spec: JobSpec, config: AdlConfig) -> Role:
    """The only role of an AdaptDLJob; its rank 0 reports. Its GPUs are those of one replica."""
    return Role(
        name="main",
        count=1,
        command=spec.command,
        image=config.docker_image,
        container=CONTAINER,
        reports=True,
        gpus=spec.gpu_number,
        resources={"cpu": str(config.trial_cpu_number), "memory": config.trial_memory_size},
        pull_secrets=config.secret_names,
    )


def claim_name(name: str) -> str:
    """The name of the volume claim for the checkpoints of job `name`."""
    return f"{name}-checkpoint"


def job(
    spec: JobSpec, config: AdlConfig, pods: PodSettings, labels: Mapping[str, str], secret: str, name: str
) -> Object:
    """The AdaptDLJob of an attempt: only its `spec`."""
    template = pod_template(spec, role(spec, config), pods, labels, secret, is_alone=not config.adaptive)
    whole = merged(template, _volumes(template, config, name), CONTAINER)
    replicas = {} if config.adaptive else {"minReplicas": 1, "maxReplicas": 1}
    return {"spec": {"template": whole, "preemptible": config.adaptive, **replicas}}


def _volumes(template: Object, config: AdlConfig, name: str) -> Object:
    """Additions to the pod template: checkpoint volumes, which outlive pods, and the section's mounts."""
    container = template["spec"]["containers"][0]
    volumes, mounts = list(template["spec"]["volumes"]), list(container["volumeMounts"])
    source: Object = {"emptyDir": {}}
    if config.checkpoint is not None:
        source = {"persistentVolumeClaim": {"claimName": claim_name(name)}}
    volumes.append({"name": _CHECKPOINTS, **source})
    for path in (_CHECKPOINT_PATH, _SHARE_PATH, _BOARD_PATH):
        mounts.append({"name": _CHECKPOINTS, "mountPath": path, "subPath": path.lstrip("/")})
    if (nfs := config.nfs) is not None:
        volumes.append({"name": _NFS, "nfs": {"server": nfs.server, "path": nfs.path}})
        mounts.append({"name": _NFS, "mountPath": nfs.container_mount_path})
    env = [*container["env"], *({"name": key, "value": value} for key, value in _ENVIRONMENT.items())]
    return {"spec": {"containers": [{"name": CONTAINER, "env": env, "volumeMounts": mounts}], "volumes": volumes}}


def claim(wanted: Checkpoint, job: Object) -> Object:
    """The claim of the checkpoint volume. It is deleted with its job."""
    meta = job["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim_name(meta["name"]),
            "labels": dict(meta["labels"]),
            "ownerReferences": [owner(job)],
        },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Filesystem",
            "storageClassName": wanted.storage_class,
            "resources": {"requests": {"storage": wanted.storage_size}},
        },
    }
