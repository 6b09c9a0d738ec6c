"""The adapter of Kubeflow's training operator: trials run as TFJobs or PyTorchJobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.api.cluster import Kind
from nni_manager.kubernetes.fields import ROLE_MEMORY
from nni_manager.kubernetes.jobs.cluster_objects import ClusterObjects
from nni_manager.kubernetes.jobs.pod import PodSettings, Role, pod_template
from nni_manager.kubernetes.platform import KubernetesPlatform
from nni_manager.platforms.kubeflow.config import PYTORCH, KubeflowConfig
from nni_manager.platforms.kubeflow.states import report


class KubeflowPlatform(KubernetesPlatform[KubeflowConfig]):
    """The adapter of `kubeflow`: one job of the operator for every attempt."""

    changeable = KubernetesPlatform.changeable | frozenset({"worker", "ps", "master"})

    def job_kind(self) -> Kind:
        return kind(self.config)

    def manifest(self, spec: JobSpec, name: str, labels: dict[str, str], service: ClusterObjects) -> Object:
        wanted = roles(self.config, spec.command, service.pull_secrets)
        return job(spec, self.config, wanted, service.pods(), labels, service.secret_name(name))


#: Seconds (a week) after which the operator removes an ended job.
_TTL_S = 7 * 24 * 3600
#: Our name of a role → the operator's.
_ROLES = {"worker": "Worker", "ps": "PS", "master": "Master"}
_OPERATOR = "Kubeflow's training operator (https://github.com/kubeflow/trainer, release 1.x)"


def kind(config: KubeflowConfig) -> Kind:
    """The kind of job that the section's operator runs."""
    is_torch = config.operator == PYTORCH
    return Kind(
        group="kubeflow.org",
        plural="pytorchjobs" if is_torch else "tfjobs",
        kind="PyTorchJob" if is_torch else "TFJob",
        container="pytorch" if is_torch else "tensorflow",
        read=report,
        version=config.api_version,
        keeps_failed_pods=True,  # `cleanPodPolicy` removes running ones only
        memory_field=ROLE_MEMORY,
        operator=_OPERATOR,
    )


def roles(config: KubeflowConfig, command: str, pull_secrets: Callable[[str | None], Sequence[str]]) -> list[Role]:
    """The roles of a job. The master reports, or else the first worker."""
    reporter = "worker" if config.master is None else "master"
    return [
        Role(
            name=name,
            count=role.replicas,
            command=role.command or command,
            image=role.docker_image,
            container=kind(config).container,
            reports=name == reporter,
            gpus=role.gpu_number,
            resources={"cpu": str(role.cpu_number), "memory": f"{role.memory_size}Mi"},
            pull_secrets=pull_secrets(role.private_registry_auth_path),
        )
        for name, role in config.replicas()
    ]


def job(
    spec: JobSpec,
    config: KubeflowConfig,
    wanted: Sequence[Role],
    pods: PodSettings,
    labels: Mapping[str, str],
    secret: str,
) -> Object:
    """The object of a job: only its `spec`."""
    is_alone = sum(role.count for role in wanted) == 1
    replicas = {
        _ROLES[role.name]: {
            "replicas": role.count,
            "restartPolicy": "Never",
            "template": pod_template(spec, role, pods, labels, secret, is_alone=is_alone),
        }
        for role in wanted
    }
    # no backoffLimit: with it the operator deletes the failed pod before the job's status is failed
    policy = {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": _TTL_S}
    field = "pytorchReplicaSpecs" if config.operator == PYTORCH else "tfReplicaSpecs"
    return {"spec": {"runPolicy": policy, field: replicas}}
