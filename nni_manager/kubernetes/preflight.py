"""The preflight of a cluster: checks access, the kind and the rights, and leaves nothing there."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from nni_manager.domain.errors import BadCredentials, InvalidInput, PlatformUnavailable
from nni_manager.kubernetes.api.access import Access
from nni_manager.kubernetes.api.client import Refusal, WrongAuthority
from nni_manager.kubernetes.api.cluster import Cluster, Kind
from nni_manager.kubernetes.api.names import CLAIMS, CONFIG_MAPS, EVENTS, PODS, SECRETS, Resource
from nni_manager.kubernetes.fields import KubernetesSection, PvcStorage
from nni_manager.kubernetes.jobs import storage
from nni_manager.kubernetes.jobs.cluster_objects import login_paths
from nni_manager.kubernetes.jobs.kueue import queue_there
from nni_manager.kubernetes.jobs.storage import read_login
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from trial_runner import protocol

#: The group of Kubeflow's newer kind TrainJob, and the advice for a cluster that serves it instead of an older kind.
TRAINER = "trainer.kubeflow.org"
_PLAIN_JOBS = "TrainJob of Kubeflow Trainer is not supported: use `platform: kubernetes`, which needs no operator"

Findings = list[PreflightFinding]


class Preflight:
    """The preflight checks of a cluster. `more`: further checks of an adapter."""

    def __init__(
        self,
        config: KubernetesSection,
        access: Access,
        kind: Kind,
        more: Callable[[Cluster, Resource], Awaitable[Findings]],
    ) -> None:
        self._config = config
        self._access = access
        self._kind = kind
        self._more = more
        self._channel = storage.channel(config)

    async def findings(self) -> Findings:
        """Findings of all checks. Raises no expected errors."""
        found = await self._files()
        cluster = Cluster(self._access.key)
        try:
            await cluster.check(self._access.to_text())
            await cluster.use(self._access.to_text())
            found += await self._cluster(cluster)
        except (BadCredentials, WrongAuthority) as error:
            found.append(PreflightFinding(Severity.WRONG, "cluster", str(error)))
        except PlatformUnavailable as error:
            found.append(PreflightFinding(Severity.AWAY, "cluster", str(error)))
        except Refusal as refusal:
            found.append(PreflightFinding(Severity.AWAY, "cluster", f"the cluster did not answer a check: {refusal}"))
        finally:
            await cluster.close()
        return found

    # On this machine

    async def _files(self) -> Findings:
        found = []
        for field, path in login_paths(self._config).items():
            try:
                await asyncio.to_thread(read_login, Path(path), field)
            except InvalidInput as error:
                found.append(PreflightFinding(Severity.WRONG, field, str(error)))
        here = storage.mount_point(self._config)
        if self._channel == protocol.PULL and here is None:
            sentence = "results cannot be read: the storage is not mounted here"
            fix = "set storage.localMountPoint, or another channel"
            found.append(PreflightFinding(Severity.WRONG, "channel", sentence, fix))
        elif self._channel == protocol.PULL and not await asyncio.to_thread(os.access, str(here), os.W_OK | os.X_OK):
            fix = "mount the storage there; an NFS export with root_squash needs a folder of your own"
            sentence = f"{here} is not a writable folder on this machine"
            found.append(PreflightFinding(Severity.WRONG, "storage", sentence, fix))
        return found

    # In the cluster

    async def _cluster(self, cluster: Cluster) -> Findings:
        found = [await self._version(cluster), *await self._namespace(cluster)]
        resource = await self._kind.find(cluster)
        if resource is None:
            fix = _PLAIN_JOBS if await cluster.get(f"/apis/{TRAINER}") is not None else ""
            return [*found, PreflightFinding(Severity.WRONG, self._kind.kind, self._kind.missing(), fix)]
        if self._kind.version not in ("", resource.version):
            sentence = f"the cluster does not serve {self._kind.version}; {resource.api_version} is used"
            fix = f"set apiVersion to {resource.version}"
            found.append(PreflightFinding(Severity.WARNING, self._kind.kind, sentence, fix))
        denied = await self._denied(cluster, resource)
        found += [*denied, *await self._told_less(cluster, resource, {one.subject for one in denied})]
        found += [*await self._claim(cluster), *await queue_there(cluster, self._config.queue_name)]
        return found if denied else [*found, *await self._more(cluster, resource)]

    async def _version(self, cluster: Cluster) -> PreflightFinding:
        told = await cluster.call("GET", "/version")
        version = tuple(int(re.sub(r"\D", "", str(told.get(part))) or 0) for part in ("major", "minor"))
        sentence = f"Kubernetes {told.get('gitVersion')} at {(await cluster.client()).host}"
        if version >= self._kind.oldest:
            return PreflightFinding(Severity.FINE, "cluster", sentence)
        oldest = ".".join(map(str, self._kind.oldest))
        return PreflightFinding(
            Severity.WARNING, "cluster", f"{sentence} is older than {oldest}, the oldest tested version"
        )

    async def _namespace(self, cluster: Cluster) -> Findings:
        if not await _is_missing(cluster, f"/api/v1/namespaces/{cluster.namespace}"):
            return []
        sentence = f"the namespace {cluster.namespace} does not exist"
        return [PreflightFinding(Severity.WRONG, "namespace", sentence, "correct `namespace`, or create it")]

    async def _denied(self, cluster: Cluster, resource: Resource) -> Findings:
        """Findings about missing rights that prevent jobs, one per kind: its verbs are granted together."""
        denied: dict[str, list[str]] = {}
        for verb, what, subresource, name in self._wanted(resource):
            if not await cluster.may(verb, what, subresource):
                denied.setdefault(name, []).append(verb)
        return [
            PreflightFinding(
                Severity.WRONG,
                f"rights: {name}",
                f"the account may not {', '.join(f'{verb} {name}' for verb in verbs)} in namespace {cluster.namespace}",
                f"ask an administrator to grant {', '.join(verbs)} of {name} (API group "
                f"{resource.group if name == resource.plural else ''!r}) by a Role and a RoleBinding",
            )
            for name, verbs in denied.items()
        ]

    async def _told_less(self, cluster: Cluster, resource: Resource, denied: set[str]) -> Findings:
        """Findings about missing rights that reduce or delay information. `denied`: subjects found before."""
        found = []
        for what in (resource, PODS):
            if f"rights: {what.plural}" not in denied and not await cluster.may("watch", what):
                sentence = (
                    f"the account may not watch {what.plural} in namespace {cluster.namespace}: they are listed every"
                    " five seconds"
                )
                fix = "ask for the right to watch in addition to list"
                found.append(PreflightFinding(Severity.WARNING, f"rights: {what.plural}", sentence, fix))
        if self._channel == protocol.PUSH_OR_EXEC and not await cluster.may_exec():
            sentence = (
                "the account may not get and create pods/exec, or get secrets: results arrive only from pods that reach"
                " this machine"
            )
            fix = "set nniManagerIp to an address that pods reach, or ask for these rights"
            found.append(PreflightFinding(Severity.WARNING, "rights", sentence, fix))
        return [*found, *await self._untold(cluster)]

    async def _untold(self, cluster: Cluster) -> Findings:
        """Findings about missing rights that only reduce messages to users."""
        found = []
        for verb, what, subresource, use in (
            ("list", EVENTS, "", "why jobs wait"),
            ("get", PODS, "log", "what pods print"),
        ):
            if not await cluster.may(verb, what, subresource):
                name = f"{what.plural}/{subresource}" if subresource else what.plural
                sentence = f"the account may not {verb} {name}: {use} is not always shown"
                found.append(PreflightFinding(Severity.WARNING, "rights", sentence))
        return found

    def _wanted(self, resource: Resource) -> list[tuple[str, Resource, str, str]]:
        """The rights that jobs need: verb, kind, subresource, and both as text."""
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
        claim = volume.claim_name if isinstance(volume, PvcStorage) else None
        if not claim or not await _is_missing(cluster, CLAIMS.path(cluster.namespace, claim)):
            return []
        sentence = f"namespace {cluster.namespace} has no claim {claim}"
        return [PreflightFinding(Severity.WRONG, "storage.claimName", sentence, "correct storage.claimName")]


async def _is_missing(cluster: Cluster, path: str) -> bool:
    """Whether an object is known not to exist; False if the right to read it is missing."""
    try:
        await cluster.call("GET", path)
    except Refusal as refusal:
        return refusal.status == 404
    return False


async def secrets_there(cluster: Cluster, names: Sequence[str]) -> Findings:
    """Findings about missing Secrets with registry logins that the section names."""
    return [
        PreflightFinding(
            Severity.WRONG,
            "imagePullSecrets",
            f"namespace {cluster.namespace} has no Secret {name}",
            "correct the name, or create it with `kubectl create secret docker-registry`",
        )
        for name in names
        if await _is_missing(cluster, SECRETS.path(cluster.namespace, name))
    ]


async def storage_class_there(cluster: Cluster, name: str) -> Findings:
    """A finding if the storage class of the checkpoint volume does not exist."""
    if not await _is_missing(cluster, f"/apis/storage.k8s.io/v1/storageclasses/{name}"):
        return []
    fix = "correct checkpoint.storageClass; `kubectl get storageclass` lists them"
    return [PreflightFinding(Severity.WRONG, "checkpoint", f"the cluster has no storage class {name}", fix)]
