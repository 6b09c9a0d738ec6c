"""The adapter of plain Kubernetes: trials run as Jobs of `batch/v1`."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.api.cluster import Cluster, Kind
from nni_manager.kubernetes.api.names import Resource
from nni_manager.kubernetes.jobs.cluster_objects import ClusterObjects
from nni_manager.kubernetes.jobs.pod import PodSettings, Role, merged, pod_template
from nni_manager.kubernetes.platform import KubernetesPlatform
from nni_manager.kubernetes.preflight import secrets_there
from nni_manager.platform_kit.contract import PreflightFinding
from nni_manager.platforms.kubernetes.config import KubernetesConfig
from nni_manager.platforms.kubernetes.states import report


class BatchJobPlatform(KubernetesPlatform[KubernetesConfig]):
    """The adapter of `kubernetes`: one Job for every attempt."""

    changeable = KubernetesPlatform.changeable | frozenset(
        "dockerImage trialCpuNumber trialMemorySize imagePullSecrets serviceAccountName nodeSelector tolerations"
        " volumes secretEnvironment ttl".split()
    )
    #: The optional fields of a Job that the server knows.
    _known: frozenset[str] = frozenset()

    def job_kind(self) -> Kind:
        return KIND

    async def on_connected(self, cluster: Cluster, resource: Resource) -> None:
        self._known = await cluster.fields(resource, "io.k8s.api.batch.v1.JobSpec")

    def manifest(self, spec: JobSpec, name: str, labels: dict[str, str], service: ClusterObjects) -> Object:
        pods = service.pods(service_account=self.config.service_account_name or "")
        return job(spec, self.config, pods, labels, service.secret_name(name), self._known)

    async def look_further(self, cluster: Cluster) -> list[PreflightFinding]:
        return await secrets_there(cluster, self.config.secret_names)


CONTAINER = "trial"
KIND = Kind(
    group="batch",
    plural="jobs",
    kind="Job",
    container=CONTAINER,
    read=report,
    version="v1",
    operator="Kubernetes 1.24 or newer",
    oldest=(1, 24),
)
#: Fields that keep the Job's controller from running a pod again; servers before 1.26 and 1.29 lack them.
_NO_REPLACEMENT: Object = {
    "podReplacementPolicy": "Failed",
    "podFailurePolicy": {
        "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    },
}


def job(
    spec: JobSpec,
    config: KubernetesConfig,
    pods: PodSettings,
    labels: Mapping[str, str],
    secret: str,
    known: Collection[str],
) -> Object:
    """The Job of an attempt: only its `spec`. `known`: the fields of a Job that the server knows."""
    role = Role(
        name=CONTAINER,
        count=1,
        command=spec.command,
        image=config.docker_image,
        container=CONTAINER,
        reports=True,
        gpus=spec.gpu_number,
        resources={"cpu": config.trial_cpu_number, "memory": config.trial_memory_size},
        pull_secrets=config.secret_names,
    )
    pods = dataclasses.replace(pods, template=merged(_template(config), pods.template, CONTAINER))
    template = pod_template(spec, role, pods, labels, secret, is_alone=True)
    template["spec"]["restartPolicy"] = "Never"
    return {
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "ttlSecondsAfterFinished": round(config.ttl),
            **{name: value for name, value in _NO_REPLACEMENT.items() if name in known},
            "template": template,
        }
    }


def _template(config: KubernetesConfig) -> Object:
    """The section's own fields as a pod template, over which `podTemplate` is merged."""
    container: Object = {"name": CONTAINER, **_environment(config)}
    spec: Object = {"containers": [container]}
    if config.volumes:
        named = [(f"volume-{number}", one) for number, one in enumerate(config.volumes)]
        spec["volumes"] = [{"name": name, **one.sources()} for name, one in named]
        container["volumeMounts"] = [
            {
                "name": name,
                "mountPath": one.mount_path,
                "readOnly": one.read_only,
                **({"subPath": one.sub_path} if one.sub_path else {}),
            }
            for name, one in named
        ]
    if config.node_selector:
        spec["nodeSelector"] = dict(config.node_selector)
    if config.tolerations:
        spec["tolerations"] = [one.model_dump(by_alias=True, exclude_none=True) for one in config.tolerations]
    if config.service_account_name:
        spec["serviceAccountName"] = config.service_account_name
    return {"spec": spec}


def _environment(config: KubernetesConfig) -> Object:
    """The variables from Secrets, as fields of a container."""
    given = config.secret_environment or ()
    single = [
        {"name": one.variable or one.key, "valueFrom": {"secretKeyRef": {"name": one.secret_name, "key": one.key}}}
        for one in given
        if one.key
    ]
    whole = [{"secretRef": {"name": one.secret_name}} for one in given if not one.key]
    return {**({"env": single} if single else {}), **({"envFrom": whole} if whole else {})}
