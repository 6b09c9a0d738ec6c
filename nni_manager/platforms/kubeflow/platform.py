"""The adapter of Kubeflow's training operator: trials run as its TFJobs or PyTorchJobs."""

from __future__ import annotations

from nni_manager.domain.job import JobSpec
from nni_manager.platform_kit.kubernetes import names
from nni_manager.platform_kit.kubernetes.client import Object
from nni_manager.platform_kit.kubernetes.kind import Kind
from nni_manager.platform_kit.kubernetes.platform import KubernetesPlatform
from nni_manager.platform_kit.kubernetes.service import Service
from nni_manager.platforms.kubeflow import jobs


class KubeflowPlatform(KubernetesPlatform):
    """The adapter of `kubeflow`: one job of the operator for every attempt."""

    name = "kubeflow"

    def job_kind(self) -> Kind:
        return jobs.kind(self.settings)

    def object_name(self, spec: JobSpec) -> str:
        return names.dashed(spec)

    def manifest(self, spec: JobSpec, name: str, labels: dict[str, str], service: Service) -> Object:
        wanted = jobs.roles(self.settings, spec.command, spec.gpu_number, service.pull_secrets)
        return jobs.job(spec, self.settings, wanted, service.pods(), labels, service.secret_name(name))
