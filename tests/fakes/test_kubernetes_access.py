"""Authentication and rights on the fake API server."""

from __future__ import annotations

import datetime
import json
import stat
import sys
from pathlib import Path

import pytest
from kubernetes_asyncio import client

from tests.fakes.kubernetes.kubeconfig import Credentials
from tests.fakes.kubernetes.server import Server
from tests.fakes.kubernetes.testing import NAMESPACE, TestCluster

pytestmark = [pytest.mark.unit, pytest.mark.cluster(controllers=False)]


def server(world: TestCluster) -> Server:
    return world.fake


def token_config(world: TestCluster, tmp_path: Path, token: str) -> Path:
    return server(world).kubeconfig(tmp_path / "other", Credentials(token=token))


async def allow(world: TestCluster, user: str, verbs: list[str], resources: list[str], group: str = "") -> None:
    async with world.client() as api:
        rbac = client.RbacAuthorizationV1Api(api)
        rules = [{"verbs": verbs, "apiGroups": [group], "resources": resources}]
        await rbac.create_namespaced_role(NAMESPACE, {"metadata": {"name": "some"}, "rules": rules})
        subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "Role", "name": "some", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": "some"}, "subjects": [subject], "roleRef": role}
        await rbac.create_namespaced_role_binding(NAMESPACE, binding)


async def test_roles_grant_rights(world: TestCluster, tmp_path: Path) -> None:
    await allow(world, "ann", ["get", "list"], ["pods"])
    token = world.control.user("ann")["token"]
    async with world.client(token_config(world, tmp_path, token)) as api:
        core = client.CoreV1Api(api)
        assert (await core.list_namespaced_pod(NAMESPACE)).items == []
        with pytest.raises(client.ApiException) as error:
            await core.list_namespaced_secret(NAMESPACE)
    assert error.value.status == 403
    assert json.loads(error.value.body)["message"] == (
        'secrets is forbidden: User "ann" cannot list resource "secrets" in API group "" in the namespace "'
        f'{NAMESPACE}"'
    )


async def test_watch_needs_its_own_right(world: TestCluster, tmp_path: Path) -> None:
    await allow(world, "ann", ["list"], ["pods"])
    async with world.client(token_config(world, tmp_path, world.control.user("ann")["token"])) as api:
        answer = await client.CoreV1Api(api).list_namespaced_pod(NAMESPACE, watch=True, _preload_content=False)
        assert answer.status == 403 and "cannot watch" in (await answer.json())["message"]


@pytest.mark.parametrize(
    ("verb", "subresource", "allowed"), [("get", "", True), ("get", "log", False), ("delete", "", False)]
)
async def test_access_review_answers(
    world: TestCluster, tmp_path: Path, verb: str, subresource: str, allowed: bool
) -> None:
    await allow(world, "ann", ["get"], ["pods"])
    asked = {"namespace": NAMESPACE, "verb": verb, "group": "", "resource": "pods", "subresource": subresource}
    async with world.client(token_config(world, tmp_path, world.control.user("ann")["token"])) as api:
        review = await client.AuthorizationV1Api(api).create_self_subject_access_review(
            {"spec": {"resourceAttributes": asked}}
        )
    assert review.status.allowed is allowed


async def test_expired_token_is_refused(world: TestCluster) -> None:
    async with world.client() as api:
        core = client.CoreV1Api(api)
        await core.list_namespaced_pod(NAMESPACE)
        world.control.expire_tokens("kubernetes-admin")
        with pytest.raises(client.ApiException) as error:
            await core.list_namespaced_pod(NAMESPACE)
        assert error.value.status == 401 and json.loads(error.value.body)["reason"] == "Unauthorized"


async def test_client_certificate_names_the_user(world: TestCluster, tmp_path: Path) -> None:
    pair = server(world).cluster.authority.client("ben", ["system:masters"])
    config = server(world).kubeconfig(tmp_path / "other", Credentials(pair=pair))
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    async with world.client(config) as api:
        review = await client.AuthenticationV1Api(api).create_self_subject_review({})
        assert review.status.user_info.username == "ben"
        await client.CoreV1Api(api).list_node()


async def test_exec_plugin_gives_the_token(world: TestCluster, tmp_path: Path) -> None:
    token = world.control.user("cid", groups=["system:masters"])["token"]
    told = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token}}
    plug_in = tmp_path / "credential.py"
    plug_in.write_text(f"print({json.dumps(told)!r})")
    command = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(plug_in)],
        "interactiveMode": "Never",
    }
    config = server(world).kubeconfig(tmp_path / "other", Credentials(exec=command))
    async with world.client(config) as api:
        review = await client.AuthenticationV1Api(api).create_self_subject_review({})
    assert review.status.user_info.username == "cid"


async def test_anonymous_user_sees_only_the_version(world: TestCluster, tmp_path: Path) -> None:
    async with world.client(token_config(world, tmp_path, "wrong")) as api:
        assert await client.VersionApi(api).get_code()
        with pytest.raises(client.ApiException) as error:
            await client.CoreV1Api(api).list_namespace()
    assert error.value.status == 401


async def test_account_token_without_audience_is_for_the_server(world: TestCluster, tmp_path: Path) -> None:
    async with world.client() as api:
        core = client.CoreV1Api(api)
        await core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": "robot"}})
        answer = await core.create_namespaced_service_account_token("robot", NAMESPACE, {"spec": {}})
    assert answer.spec.audiences == ["https://kubernetes.default.svc.cluster.local"]
    left = answer.status.expiration_timestamp - datetime.datetime.now(datetime.UTC)
    assert answer.spec.expiration_seconds == 3600 and 3500 < left.total_seconds() <= 3600
    async with world.client(token_config(world, tmp_path, answer.status.token)) as api:
        review = await client.AuthenticationV1Api(api).create_self_subject_review({})
    assert review.status.user_info.username == f"system:serviceaccount:{NAMESPACE}:robot"
