"""A namespace that the tests have for themselves, with an account that may do there what the README asks for, and no
more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes_asyncio import client

from nni_manager.kubernetes.api.cluster import Kind
from tests.platforms.live.kubeconfigs import Kubeconfig
from tests.platforms.live.pod_orders import api

#: By which namespaces of these tests are found again.
LABEL = "nni-manager/live"
_ACCOUNT = "nni-manager"
#: Seconds until a new namespace has its own, and until a new role counts; what comes with neither is said.
_READY_S, _ROLE_S = 15.0, 60.0
_LOOK_AGAIN_S = 0.2
#: Kinds of objects of a namespace that tests and operators make, as the official client has them.
_CORE = ("pod", "service", "secret", "config_map", "persistent_volume_claim")
#: What every namespace has.
_OWN = "kube-root-ca.crt"


async def make(kubeconfig: Path, name: str) -> None:
    """A namespace with a service account for its pods."""
    async with api(kubeconfig) as server:
        core = client.CoreV1Api(server)
        await core.create_namespace({"metadata": {"name": name, "labels": {LABEL: "tests"}}})
        await _until(lambda: _is_there(core.read_namespaced_service_account("default", name)), _READY_S)


async def others(kubeconfig: Path) -> list[str]:
    """Namespaces that earlier runs could not remove, as they were killed."""
    async with api(kubeconfig) as server:
        found = await client.CoreV1Api(server).list_namespace(label_selector=LABEL)
    return [one.metadata.name for one in found.items]


def rules(kind: Kind) -> list[dict[str, Any]]:
    """The rights that the READMEs of Kubernetes' platforms ask for."""
    jobs = ["list", "watch", "get", "create", "delete", *(["patch"] if kind.stop else [])]
    return [
        {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": jobs},
        {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["list", "get", "create", "delete"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    ]


async def account(kubeconfig: Path, owner: Kubeconfig, name: str, kind: Kind) -> Kubeconfig:
    """A user with these rights in the namespace and no others. Raises ApiException, and TimeoutError where the
    server does not come to know of them."""
    meta = {"metadata": {"name": _ACCOUNT}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": _ACCOUNT}
    subject = {"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": name}
    async with api(kubeconfig) as server:
        core, rights = client.CoreV1Api(server), client.RbacAuthorizationV1Api(server)
        await core.create_namespaced_service_account(name, meta)
        await rights.create_namespaced_role(name, {**meta, "rules": rules(kind)})
        await rights.create_namespaced_role_binding(name, {**meta, "roleRef": role, "subjects": [subject]})
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        asked = {**request, "spec": {"expirationSeconds": 6 * 3600}}
        answer = await core.create_namespaced_service_account_token(_ACCOUNT, name, asked)
        return owner.of(answer.status.token)


async def until_allowed(kubeconfig: Path, name: str) -> None:
    """Returns once an account's role counts: servers come to know of it a moment later. Raises TimeoutError."""
    async with api(kubeconfig) as server:
        core = client.CoreV1Api(server)
        if not await _until(lambda: _is_there(core.list_namespaced_pod(name)), _ROLE_S):
            raise TimeoutError(f"the role of {_ACCOUNT} does not count after {_ROLE_S:g} s")


async def remove(kubeconfig: Path, name: str, kinds: list[Kind], patience_s: float) -> list[str]:
    """Removes a namespace with all that is in it. What is still there after `patience_s`, a line each."""
    async with api(kubeconfig) as server:
        core = client.CoreV1Api(server)
        await _remove_jobs(server, name, kinds)
        if await _until(lambda: _is_removed(core, name), patience_s):
            return []
        found = [f"namespace {name}, after {patience_s:g} s; try `kubectl delete namespace {name}`"]
        with contextlib.suppress(client.ApiException, aiohttp.ClientError):
            found += await _left(server, name, kinds)
        return found


async def _remove_jobs(server: client.ApiClient, name: str, kinds: list[Kind]) -> None:
    """First of all: their operators must be told while they can still write there."""
    custom = client.CustomObjectsApi(server)
    for kind in kinds:
        with contextlib.suppress(client.ApiException, aiohttp.ClientError):
            await custom.delete_collection_namespaced_custom_object(kind.group, kind.version or "v1", name, kind.plural)


async def _is_removed(core: client.CoreV1Api, name: str) -> bool:
    """Asked to be, again and again: a server that is restarting refuses for a while."""
    with contextlib.suppress(client.ApiException, aiohttp.ClientError):
        await core.delete_namespace(name)
    with contextlib.suppress(aiohttp.ClientError):
        return await _is_gone(core.read_namespace(name))
    return False


async def _left(server: client.ApiClient, name: str, kinds: list[Kind]) -> list[str]:
    core, custom, found = client.CoreV1Api(server), client.CustomObjectsApi(server), []
    for what in _CORE:
        listed = await getattr(core, f"list_namespaced_{what}")(name)
        found += [f"{what} {one.metadata.name}" for one in listed.items if one.metadata.name != _OWN]
    for kind in kinds:
        with contextlib.suppress(client.ApiException):
            told = await custom.list_namespaced_custom_object(kind.group, kind.version or "v1", name, kind.plural)
            found += [f"{kind.plural} {one['metadata']['name']}" for one in told["items"]]
    return found


async def _is_there(asked: Awaitable[object]) -> bool:
    try:
        await asked
    except client.ApiException as error:
        if error.status not in (401, 403, 404):
            raise
        return False
    return True


async def _is_gone(asked: Awaitable[object]) -> bool:
    """A refusal proves nothing."""
    try:
        await asked
    except client.ApiException as error:
        return error.status == 404
    return False


async def _until(holds: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not await holds():  # noqa: ASYNC110 (namespaces of this server are not watched)
                await asyncio.sleep(_LOOK_AGAIN_S)
            return True
    return False
