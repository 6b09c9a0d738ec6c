"""What an API server offers of what the tests want: asked, and said line by line, before anything is made there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from kubernetes_asyncio import client

from nni_manager.kubernetes.api.cluster import Kind
from nni_manager.platform_kit.testing import Feature
from tests.platforms.live.pod_orders import api


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One thing. `is_needed`: without it the tests of this kind of job cannot run."""

    what: str
    is_there: bool
    is_needed: bool = False
    #: What the tests go without where it is not there.
    feature: Feature | None = None

    def __str__(self) -> str:
        return f"{'offers' if self.is_there else 'does not offer'} {self.what}"


async def of_server(kubeconfig: Path) -> AsyncIterator[Offer]:
    """Whatever the kind of job. Raises ApiException and aiohttp's errors."""
    async with api(kubeconfig) as server:
        version = await client.VersionApi(server).get_code()
        yield Offer(what=f"Kubernetes {version.git_version} at {server.configuration.host}", is_there=True)
        groups = {one.name for one in (await client.ApisApi(server).get_api_versions()).groups}
        yield Offer(what="RBAC (rbac.authorization.k8s.io)", is_there="rbac.authorization.k8s.io" in groups)
        for verb in ("create", "delete"):
            is_there = await _may(server, verb, "", "namespaces")
            yield Offer(what=f"{verb} namespaces", is_there=is_there, is_needed=True)


async def of_kind(kubeconfig: Path, namespace: str, kind: Kind) -> AsyncIterator[Offer]:
    """What jobs of a kind need in a namespace that is there."""
    async with api(kubeconfig) as server:
        for verb in ("create", "list", "delete"):
            is_there = await _may(server, verb, kind.group, kind.plural, namespace)
            yield Offer(what=f"{verb} {kind.plural}", is_there=is_there, is_needed=True)
        is_watched = await _watches(server, namespace, kind)
        yield Offer(what=f"watch {kind.plural}", is_there=is_watched)
        for verb, resource, feature in (("create", "pods/exec", None), ("get", "pods/log", Feature.LOGS)):
            is_there = await _may(server, verb, "", resource, namespace)
            yield Offer(what=f"{verb} {resource}", is_there=is_there, is_needed=feature is None, feature=feature)
        yield Offer(what="list events", is_there=await _may(server, "list", "", "events", namespace))


async def serves(kubeconfig: Path, kind: Kind) -> bool:
    """Whether the server has a kind; whether its operator runs, the first job tells."""
    async with api(kubeconfig) as server:
        try:
            found = await client.CustomObjectsApi(server).get_api_resources(kind.group, kind.version or "v1")
        except client.ApiException as error:
            if error.status == 404:
                return False
            raise
    return kind.plural in {one.name for one in found.resources}


async def _may(server: client.ApiClient, verb: str, group: str, resource: str, namespace: str = "") -> bool:
    name, _, subresource = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": name, "subresource": subresource, "namespace": namespace}
    body = {"spec": {"resourceAttributes": asked}}
    found = await client.AuthorizationV1Api(server).create_self_subject_access_review(body)
    return bool(found.status.allowed)


async def _watches(server: client.ApiClient, namespace: str, kind: Kind) -> bool:
    custom = client.CustomObjectsApi(server)
    with contextlib.suppress(client.ApiException):
        answer = await custom.list_namespaced_custom_object(
            kind.group,
            kind.version or "v1",
            namespace,
            kind.plural,
            watch=True,
            timeout_seconds=1,
            _preload_content=False,
        )
        is_watched = answer.status == 200
        answer.release()
        return is_watched
    return False
