"""The adapter of Kubeflow's training operator: trials run as its TFJobs or PyTorchJobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from nni_manager.domain.experiment import Json
from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api import names
from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.api.kind import Kind
from nni_manager.kubernetes.jobs.cluster_objects import ClusterObjects
from nni_manager.kubernetes.jobs.pod import PodSettings, Role, pod_template
from nni_manager.kubernetes.platform import KubernetesPlatform
from nni_manager.platforms.kubeflow.config import PYTORCH
from nni_manager.platforms.kubeflow.states import report


class KubeflowPlatform(KubernetesPlatform):
    """The adapter of `kubeflow`: one job of the operator for every attempt."""

    name = "kubeflow"

    def job_kind(self) -> Kind:
        return kind(self.settings)

    def object_name(self, spec: JobSpec) -> str:
        return names.dashed(spec)

    def manifest(self, spec: JobSpec, name: str, labels: dict[str, str], service: ClusterObjects) -> Object:
        wanted = roles(self.settings, spec.command, spec.gpu_number, service.pull_secrets)
        return job(spec, self.settings, wanted, service.pods(), labels, service.secret_name(name))


#: Seconds for which an ended job is kept when nobody is there to remove it: a week.
_TTL_S = 7 * 24 * 3600
#: Our name of a role → the operator's.
_ROLES = {"worker": "Worker", "ps": "PS", "master": "Master"}
_OPERATOR = "Kubeflow's training operator (https://github.com/kubeflow/trainer, release 1.x)"


def kind(settings: Json) -> Kind:
    """The kind of job that the section's operator runs."""
    is_torch = settings["operator"] == PYTORCH
    return Kind(
        group="kubeflow.org",
        plural="pytorchjobs" if is_torch else "tfjobs",
        kind="PyTorchJob" if is_torch else "TFJob",
        container="pytorch" if is_torch else "tensorflow",
        read=report,
        version=str(settings.get("apiVersion") or ""),
        operator=_OPERATOR,
    )


def roles(
    settings: Json, command: str, gpus: int | None, pull_secrets: Callable[[object], Sequence[str]]
) -> list[Role]:
    """The roles of a job; the master reports, else the first worker."""
    return list(_roles(settings, command, gpus, pull_secrets))


def _roles(
    settings: Json, command: str, gpus: int | None, pull_secrets: Callable[[object], Sequence[str]]
) -> Iterator[Role]:
    reporter = "master" if settings.get("master") else "worker"
    for name in _ROLES:
        told = settings.get(name)
        if isinstance(told, Mapping):
            yield Role(
                name=name,
                count=int(told["replicas"]),
                command=str(told.get("command") or command),
                image=str(told["dockerImage"]),
                container=kind(settings).container,
                reports=name == reporter,
                gpus=int(told.get("gpuNumber") or 0),
                resources={"cpu": str(told["cpuNumber"]), "memory": f"{told['memorySize']}Mi"},
                pull_secrets=pull_secrets(told.get("privateRegistryAuthPath")),
            )


def job(
    spec: JobSpec, settings: Json, wanted: Sequence[Role], pods: PodSettings, labels: Mapping[str, str], secret: str
) -> Object:
    """The object of a job, with nothing but its `spec`."""
    is_alone = sum(role.count for role in wanted) == 1
    replicas = {
        _ROLES[role.name]: {
            "replicas": role.count,
            "restartPolicy": "Never",
            "template": pod_template(spec, role, pods, labels, secret, is_alone=is_alone),
        }
        for role in wanted
    }
    # no backoffLimit: by it the operator deletes the failed pod, which tells why, before the job says that it failed
    policy = {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": _TTL_S}
    field = "pytorchReplicaSpecs" if settings["operator"] == PYTORCH else "tfReplicaSpecs"
    return {"spec": {"runPolicy": policy, field: replicas}}
