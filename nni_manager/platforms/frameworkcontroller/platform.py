"""The adapter of FrameworkController: trials run as its Frameworks."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path

import yaml

from nni_manager.domain.errors import SubmitRejected
from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api import names
from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.api.cluster import Cluster, Kind
from nni_manager.kubernetes.jobs.cluster_objects import ClusterObjects
from nni_manager.kubernetes.platform import KubernetesPlatform
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platforms.frameworkcontroller import jobs
from nni_manager.platforms.frameworkcontroller.config import FrameworkcontrollerConfig, legal_role_name


class FrameworkcontrollerPlatform(KubernetesPlatform[FrameworkcontrollerConfig]):
    """The adapter of `frameworkcontroller`: one Framework for every attempt.

    A completed Framework has no pods: its status says how it ended.
    """

    @classmethod
    def restarts(cls, config: FrameworkcontrollerConfig) -> bool:
        return config.config_path is not None  # the template's policies may

    def job_kind(self) -> Kind:
        found = jobs.kind(self.config)
        if (template := self._template) is None:
            return found
        container = jobs.template_roles(template)[0].container
        return dataclasses.replace(
            found, container=container, memory_field="the memory limit in the file at configPath"
        )

    @cached_property
    def _template(self) -> Object | None:
        """The user's template, read from `configPath`; None: the section has none. Raises SubmitRejected."""
        path = self.config.config_path
        if path is None:
            return None
        try:
            template: Object = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
            jobs.template_roles(template)
        except (OSError, ValueError, TypeError, LookupError, yaml.YAMLError) as error:
            raise SubmitRejected(f"configPath: {path} is not a usable Framework ({error!r})") from None
        return template

    def pod_fields(self) -> str:
        return "podTemplate" if self.config.config_path is None else "podTemplate, or the template at configPath"

    def as_made(self, pod: Object) -> Object:
        return jobs.without_profile(pod)

    async def look_further(self, cluster: Cluster) -> list[PreflightFinding]:
        """A finding if the service account may not get Frameworks: tasks read theirs to wait for each other."""
        resource = await self.job_kind().find(cluster)
        if self._template is not None or resource is None or jobs.is_alone(self.config):
            return []
        account = self.config.service_account_name or "default"
        if await cluster.account_may(account, "get", resource) is not False:
            return []
        sentence = f"the service account {account} may not get frameworks: tasks would wait for each other forever"
        fix = "set another service account, or grant it `get` of frameworks"
        return [PreflightFinding(Severity.WRONG, "serviceAccountName", sentence, fix)]

    def _role_names(self) -> list[str]:
        if (template := self._template) is not None:
            return [role.name for role in jobs.template_roles(template)]
        return [legal_role_name(role.name) for role in self.config.task_roles or ()]

    def object_name(self, spec: JobSpec) -> str:
        return names.alphanumeric(spec, max(map(len, self._role_names())))

    def manifest(self, spec: JobSpec, name: str, labels: dict[str, str], service: ClusterObjects) -> Object:
        secret = service.secret_name(name)
        pods = service.pods(service_account=self.config.service_account_name or "")
        if (template := self._template) is not None:
            return jobs.from_template(template, spec, pods, labels, secret)
        wanted = jobs.roles(self.config, spec.command, service.pull_secrets)
        return jobs.framework(spec, wanted, pods, labels, secret)
