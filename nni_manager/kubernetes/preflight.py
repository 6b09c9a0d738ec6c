"""The preflight of a cluster: whether it answers, serves the kind and grants the rights. Leaves nothing there."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from nni_manager.domain.errors import BadCredentials, InvalidInput, PlatformUnavailable
from nni_manager.kubernetes.api.access import Access
from nni_manager.kubernetes.api.client import Refusal, WrongAuthority
from nni_manager.kubernetes.api.cluster import Cluster, Kind
from nni_manager.kubernetes.api.connectivity import may_exec
from nni_manager.kubernetes.api.names import CLAIMS, CONFIG_MAPS, EVENTS, PODS, SECRETS, Resource
from nni_manager.kubernetes.fields import KubernetesSection, PvcStorage
from nni_manager.kubernetes.jobs import storage
from nni_manager.kubernetes.jobs.cluster_objects import login_paths
from nni_manager.kubernetes.jobs.shared_objects import read_login
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from trial_runner import protocol

#: The oldest that we know to have all we use: CustomResourceDefinitions as `apiextensions.k8s.io/v1`.
OLDEST = (1, 16)

Findings = AsyncIterator[PreflightFinding]


class Preflight:
    """The preflight checks of a cluster. `more`: further checks of an adapter."""

    def __init__(
        self,
        config: KubernetesSection,
        access: Access,
        kind: Kind,
        more: Callable[[Cluster, Resource], Findings] | None = None,
    ) -> None:
        self._config = config
        self._access = access
        self._kind = kind
        self._more = more
        self._channel = storage.channel(config)

    async def findings(self) -> Sequence[PreflightFinding]:
        """Findings of all checks. Raises nothing on purpose."""
        found = [one async for one in self._files()]
        cluster = Cluster(self._access.key)
        try:
            await cluster.check(self._access.to_text())
            await cluster.use(self._access.to_text())
            found += [one async for one in self._cluster(cluster)]
        except (BadCredentials, WrongAuthority) as error:
            found.append(_finding(Severity.WRONG, "cluster", str(error)))
        except PlatformUnavailable as error:
            found.append(_finding(Severity.AWAY, "cluster", str(error)))
        except Refusal as refusal:
            found.append(_finding(Severity.AWAY, "cluster", f"the cluster does not say: {refusal}"))
        finally:
            await cluster.close()
        return found

    # On this machine

    async def _files(self) -> Findings:
        for field, path in login_paths(self._config).items():
            try:
                await asyncio.to_thread(read_login, Path(path), field)
            except InvalidInput as error:
                yield _finding(Severity.WRONG, field, str(error))
        here = storage.mount_point(self._config)
        if self._channel == protocol.PULL:
            if here is None:
                yield _finding(
                    Severity.WRONG,
                    "channel",
                    "results cannot be read: the storage is not mounted here",
                    "set storage.localMountPoint, or another channel",
                )
            elif not await asyncio.to_thread(os.access, here, os.W_OK | os.X_OK):
                yield _finding(
                    Severity.WRONG,
                    "storage",
                    f"{here} is no folder that can be written here",
                    "mount the storage there; an NFS export with root_squash needs a folder of your own",
                )

    # In the cluster

    async def _cluster(self, cluster: Cluster) -> Findings:
        async for one in self._version(cluster):
            yield one
        async for one in self._namespace(cluster):
            yield one
        resource = await self._kind.find(cluster)
        if resource is None:
            yield _finding(Severity.WRONG, self._kind.kind, self._kind.missing())
            return
        if self._kind.version not in ("", resource.version):
            yield _finding(
                Severity.WARNING,
                self._kind.kind,
                f"the cluster does not serve {self._kind.version}; {resource.api_version} is used",
                f"set apiVersion to {resource.version}",
            )
        denied = [one async for one in self._rights(cluster, resource)]
        for one in denied:
            yield one
        async for one in self._claim(cluster):
            yield one
        if self._more is not None and not any(one.severity is Severity.WRONG for one in denied):
            async for one in self._more(cluster, resource):
                yield one

    async def _version(self, cluster: Cluster) -> Findings:
        told = await cluster.call("GET", "/version")
        version = tuple(int(re.sub(r"\D", "", str(told.get(part))) or 0) for part in ("major", "minor"))
        sentence = f"Kubernetes {told.get('gitVersion')} at {(await cluster.client()).host}"
        if version < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            yield _finding(Severity.WARNING, "cluster", f"{sentence} is older than {oldest}, the oldest that is tried")
        else:
            yield _finding(Severity.FINE, "cluster", sentence)

    async def _namespace(self, cluster: Cluster) -> Findings:
        try:
            await cluster.call("GET", f"/api/v1/namespaces/{cluster.namespace}")
        except Refusal as refusal:
            if refusal.status == 404:
                yield _finding(
                    Severity.WRONG,
                    "namespace",
                    f"there is no namespace {cluster.namespace}",
                    "correct `namespace`, or have it made",
                )

    async def _rights(self, cluster: Cluster, resource: Resource) -> Findings:
        """Findings about missing rights, one for each kind: its verbs are granted together."""
        denied: dict[str, list[str]] = {}
        for verb, what, subresource, name in self._wanted(resource):
            if not await cluster.may(verb, what, subresource):
                denied.setdefault(name, []).append(verb)
        for name, verbs in denied.items():
            group = resource.group if name == resource.plural else ""
            yield _finding(
                Severity.WRONG,
                f"rights: {name}",
                f"we may not {', '.join(f'{verb} {name}' for verb in verbs)} in namespace {cluster.namespace}",
                f"have an administrator grant {', '.join(verbs)} of {name} (API group {group!r}) by a Role and a "
                "RoleBinding",
            )
        for what in (resource, PODS):
            if what.plural not in denied and not await cluster.may("watch", what):
                yield _finding(
                    Severity.WARNING,
                    f"rights: {what.plural}",
                    f"we may not watch {what.plural} in namespace {cluster.namespace}: they are listed every five "
                    "seconds",
                    "have watch granted beside list",
                )
        if self._channel == protocol.PUSH_OR_EXEC and not await may_exec(cluster):
            yield _finding(
                Severity.WARNING,
                "rights",
                "we may not get and create pods/exec, or get secrets: results come only where pods reach this machine",
                "set nniManagerIp to an address that pods reach, or have these verbs granted",
            )
        for what, subresource, use in ((EVENTS, "", "why jobs wait"), (PODS, "log", "what pods print")):
            verb = "get" if subresource else "list"
            if not await cluster.may(verb, what, subresource):
                name = f"{what.plural}/{subresource}" if subresource else what.plural
                yield _finding(Severity.WARNING, "rights", f"we may not {verb} {name}: {use} is not always told")

    def _wanted(self, resource: Resource) -> list[tuple[str, Resource, str, str]]:
        """The rights that jobs need: verb, kind, subresource, and a name of the last two for sentences."""
        verbs = {
            resource: ("list", "create", "get", "delete", *(("patch",) if self._kind.stop else ())),
            PODS: ("list",),
            CONFIG_MAPS: ("list", "create", "delete"),
            SECRETS: ("list", "create", "delete"),
        }
        wanted = [(verb, what, "", what.plural) for what, some in verbs.items() for verb in some]
        if self._channel == protocol.EXEC:
            wanted += [(verb, PODS, "exec", "pods/exec") for verb in ("get", "create")]
            wanted.append(("get", SECRETS, "", "secrets"))
        return wanted

    async def _claim(self, cluster: Cluster) -> Findings:
        volume = self._config.pod_storage
        if (
            isinstance(volume, PvcStorage)
            and (claim := volume.claim_name)
            and await _is_missing(cluster, CLAIMS, claim)
        ):
            yield _finding(
                Severity.WRONG,
                "storage.claimName",
                f"there is no claim {claim} in namespace {cluster.namespace}",
                "correct storage.claimName",
            )


async def _is_missing(cluster: Cluster, kind: Resource, name: str) -> bool:
    """Whether an object is known not to be there; false where we may not look."""
    try:
        return await cluster.find(kind, name) is None
    except Refusal:
        return False


def _finding(severity: Severity, subject: str, sentence: str, fix: str = "") -> PreflightFinding:
    return PreflightFinding(severity=severity, subject=subject, sentence=sentence, fix=fix)


async def secrets_there(cluster: Cluster, names: Sequence[str]) -> Findings:
    """Findings about Secrets with logins of registries that the section names and that are not there."""
    for name in names:
        if await _is_missing(cluster, SECRETS, name):
            yield _finding(
                Severity.WRONG,
                "imagePullSecrets",
                f"there is no Secret {name} in namespace {cluster.namespace}",
                "correct the name, or make it with `kubectl create secret docker-registry`",
            )


async def storage_class_there(cluster: Cluster, name: str) -> Findings:
    """A finding where the storage class for the volume of checkpoints is not there."""
    try:
        await cluster.call("GET", f"/apis/storage.k8s.io/v1/storageclasses/{name}")
    except Refusal as refusal:
        if refusal.status == 404:
            yield _finding(
                Severity.WRONG,
                "checkpoint",
                f"the cluster has no storage class {name}",
                "correct checkpoint.storageClass; `kubectl get storageclass` lists them",
            )
