"""The adapter of AdaptDL: trials run as its jobs, and adaptive ones get more or fewer replicas while they run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from nni_manager.domain.experiment import Json
from nni_manager.domain.job import JobSpec
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platform_kit.kubernetes import names
from nni_manager.platform_kit.kubernetes.client import Object
from nni_manager.platform_kit.kubernetes.cluster import Cluster
from nni_manager.platform_kit.kubernetes.kind import Kind
from nni_manager.platform_kit.kubernetes.platform import KubernetesPlatform
from nni_manager.platform_kit.kubernetes.preflight import secrets_there, storage_class_there
from nni_manager.platform_kit.kubernetes.resource import CLAIMS
from nni_manager.platform_kit.kubernetes.service import Service, owner
from nni_manager.platforms.adl import jobs


class AdlPlatform(KubernetesPlatform):
    """The adapter of `adl`: one AdaptDLJob for every attempt.

    Adaptive ones are started again by their scheduler, from checkpoints.
    """

    name = "adl"

    @classmethod
    def restarts(cls, settings: Json) -> bool:
        return bool(settings.get("adaptive"))

    @classmethod
    def sends_code(cls, settings: Json) -> bool:
        return not settings.get("trialCodeDirectory")

    def job_kind(self) -> Kind:
        return jobs.kind()

    def object_name(self, spec: JobSpec) -> str:
        return names.dashed(spec)

    def manifest(self, spec: JobSpec, name: str, labels: dict[str, str], service: Service) -> Object:
        code = "" if self.sends_code(self.settings) else str(self.settings["trialCodeDirectory"])
        pods = service.pods(code_in_image=code)
        return jobs.job(spec, self.settings, pods, labels, service.secret_name(name), name)

    async def look_further(self, cluster: Cluster) -> AsyncIterator[PreflightFinding]:
        secrets: Any = self.settings.get("imagePullSecrets") or ()
        async for finding in secrets_there(cluster, [one["name"] for one in secrets]):
            yield finding
        checkpoint: Any = self.settings.get("checkpoint")
        if checkpoint:
            if not await cluster.may("create", CLAIMS):
                yield PreflightFinding(
                    severity=Severity.WRONG, subject="rights: persistentvolumeclaims",
                    sentence=f"we may not create persistentvolumeclaims in namespace {cluster.namespace}",
                    fix="have create granted, or leave checkpoint out",
                )  # fmt: skip
            async for finding in storage_class_there(cluster, checkpoint["storageClass"]):
                yield finding

    async def on_created(self, cluster: Cluster, created: Object, spec: JobSpec, service: Service) -> None:
        await super().on_created(cluster, created, spec, service)
        meta = created["metadata"]
        claim = jobs.claim(self.settings, meta["name"], meta["labels"], owner(created))
        if claim is not None:
            await service.put(CLAIMS, claim)
