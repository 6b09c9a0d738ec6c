"""What others do in the namespace, and what a cluster refuses for their sake."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobState
from nni_manager.kubernetes.api.client import Refusal
from nni_manager.kubernetes.jobs import cluster_objects, job_memory, submission
from nni_manager.platform_kit.contract import NoRoom, Severity
from nni_manager.platform_kit.testing.observing import accepted, insist, running, seen
from tests.fakes.kubernetes.certificates import Authority
from tests.fakes.kubernetes.kinds import Kind
from tests.fakes.kubernetes.kubeconfig import Credentials
from tests.fakes.kubernetes.testing import until
from tests.platforms.frameworkcontroller.test_frameworkcontroller_contract import TestFramework as Framework
from tests.platforms.kubeflow.test_kubeflow_contract import TestTFJob as TF
from tests.platforms.kubernetes_world import KubernetesWorld

pytestmark = [pytest.mark.contract]
_CONFLICT: dict[str, Any] = {
    "status": 409,
    "reason": "Conflict",
    "message": 'Operation cannot be fulfilled on resourcequotas "team": the object has been modified',
}


def world_in(folder: Path) -> KubernetesWorld:
    return TF().make_world(folder)


def named(world: KubernetesWorld, resource: str) -> list[str]:
    """Of the namespace, ours."""
    found = world.server.cluster.store.all(resource, "default")
    return [
        one["metadata"]["name"] for one in found if "nni-manager/experiment" in (one["metadata"].get("labels") or {})
    ]


async def test_removed_runner_map_is_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_memory, "_SLOW_S", 0.0)
    monkeypatch.setattr(cluster_objects, "_MEND_AGAIN_S", 0.0)
    async with world_in(tmp_path) as world, world.make() as platform:
        await running(world, platform, "a")
        [name] = named(world, "configmaps")
        world.control.delete("configmaps", "default", name)
        handle = await accepted(world, platform, "b")
        beginning = asyncio.create_task(world.begin(handle))
        await seen(world, platform, handle, JobState.RUNNING)
        await beginning
        assert named(world, "configmaps") == [name]


@pytest.mark.parametrize("path", ["/configmaps", "/secrets", "/tfjobs"])
async def test_quota_conflict_is_not_an_existing_object(tmp_path: Path, path: str) -> None:
    async with world_in(tmp_path) as world, world.make(channel="exec") as platform:
        world.control.fault(method="POST", path=path, **_CONFLICT)
        await accepted(world, platform, "a")
        assert [len(named(world, kind)) for kind in ("configmaps", "secrets", "tfjobs.kubeflow.org")] == [1, 1, 1]


async def test_secret_of_a_job_is_owned_and_costs_one_call(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world, world.make(channel="exec") as platform:
        world.control.fault(method="PATCH", times=-1, status=403, reason="Forbidden")
        world.control.fault(method="DELETE", path="/secrets", times=-1, status=403, reason="Forbidden")
        handles = [await accepted(world, platform, name) for name in "abc"]
        [job, *_] = world.server.cluster.store.all("tfjobs.kubeflow.org", "default")
        owners = [one["metadata"]["ownerReferences"][0]["uid"] for one in secrets(world)]
        assert len(owners) == 3 and job["metadata"]["uid"] in owners
        await platform.forget(handles)
        await world._until(lambda: secrets(world) == [])
        assert world.control.met().get("requests", 0) == 0, "a right that was not granted is not needed"


def secrets(world: KubernetesWorld) -> list[dict[str, Any]]:
    """The Secrets of jobs."""
    found = world.server.cluster.store.all("secrets", "default")
    return [one for one in found if one["metadata"]["name"].endswith("-runner")]


_QUOTA: dict[str, Any] = {"status": 403, "reason": "Forbidden", "message": "exceeded quota: team"}


async def test_job_without_quota_for_its_secret_is_removed(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world, world.make(channel="exec") as platform:
        world.control.fault(method="POST", path="/secrets", **_QUOTA)
        assert isinstance(await platform.submit(world.job("a")), NoRoom)
        assert named(world, "tfjobs.kubeflow.org") == []
        await accepted(world, platform, "a")
        assert len(named(world, "tfjobs.kubeflow.org")) == len(secrets(world)) == 1


async def test_found_job_is_kept_when_its_secret_is_refused(tmp_path: Path) -> None:
    """A server that was just started refuses what it allows a moment later."""
    async with world_in(tmp_path) as world, world.make(channel="exec") as platform:
        await accepted(world, platform, "a")
        world.control.fault(method="POST", path="/secrets", **_QUOTA)
        with pytest.raises(PlatformUnavailable, match="was created"):
            await platform.submit(dataclasses.replace(world.job("a"), is_repeat=True))
        assert len(named(world, "tfjobs.kubeflow.org")) == 1
        await platform.submit(dataclasses.replace(world.job("a"), is_repeat=True))


async def test_secret_of_an_earlier_job_is_created_again(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world, world.make(channel="exec") as platform:
        for name in "ab":
            await accepted(world, platform, name)
        one, two = secrets(world)
        meta = {**one["metadata"], "ownerReferences": two["metadata"]["ownerReferences"]}
        world.server.cluster.store.put("secrets", ("default", meta["name"]), {**one, "metadata": meta})
        again = [dataclasses.replace(world.job(name), is_repeat=True) for name in "ab"]
        with pytest.raises(PlatformUnavailable, match="creating it again"):
            for spec in again:
                await platform.submit(spec)
        for spec in again:
            await platform.submit(spec)
        found = {found["metadata"]["name"]: found["metadata"]["ownerReferences"] for found in secrets(world)}
        assert found[meta["name"]] == one["metadata"]["ownerReferences"] and len(found) == 2


@pytest.mark.parametrize("status", [409, 429, 500])
async def test_created_job_is_found_after_a_refused_secret(tmp_path: Path, status: int) -> None:
    async with world_in(tmp_path) as world, world.make(channel="exec") as platform:
        world.control.fault(method="POST", path="/secrets", status=status)
        handle = await accepted(world, platform, "a")
        assert len(named(world, "tfjobs.kubeflow.org")) == 1
        await seen(world, platform, handle, JobState.PENDING)


async def test_denial_of_a_webhook_refuses_the_job_and_no_credentials(tmp_path: Path) -> None:
    words = 'spec.tfReplicaSpecs[Worker].replicas: Forbidden: the team "bees" may have 1'
    async with world_in(tmp_path) as world, world.make() as platform, world.make_of(world.recorder.other("b")) as other:
        world.control.deny("tfjobs.kubeflow.org", "validator.tfjob", words)
        with pytest.raises(SubmitRejected) as refused:
            await insist(world, lambda: platform.submit(world.job("a")))
        assert str(refused.value).endswith(f'admission webhook "validator.tfjob" denied the request: {words}')
        await other.observe([])
        assert {str(one.state) for one in world.recorder.connections.health().values()} == {"up"}
        world.control.clear()
        await accepted(world, platform, "a")


DENIALS = [
    'admission webhook "x" denied the request: no',
    'admission webhook "x" denied the request without explanation',
    "[denied by require-team-label] you must provide labels",
    "ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no",
]


@pytest.mark.parametrize("message", DENIALS)
@pytest.mark.parametrize("status", [401, 403])
def test_denials_are_not_missing_rights(message: str, status: int) -> None:
    refusal = Refusal(status=status, reason="Forbidden", message=message)
    assert isinstance(submission.error(refusal, "create tfjobs", "default"), SubmitRejected)


def restrict(world: KubernetesWorld) -> None:
    """The namespace takes restricted pods alone."""
    store = world.server.cluster.store
    found = store.get("namespaces", ("", "default"))
    assert found is not None
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    store.put("namespaces", ("", "default"), {**found, "metadata": {**found["metadata"], "labels": labels}})


def without_pods(world: KubernetesWorld, folder: Path) -> str:
    """The kubeconfig of a user with all rights except to create pods."""
    verbs, kinds = world.server.cluster.verbs, world.server.cluster.kinds
    made = ["tfjobs", "frameworks", "secrets", "configmaps", "pods/exec"]
    rules = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch", "delete", "patch"]},
        {"apiGroups": ["*"], "resources": made, "verbs": ["create"]},
    ]
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "User", "name": "dev", "apiGroup": group}
    bodies: dict[str, dict[str, Any]] = {
        "Role": {"rules": rules},
        "RoleBinding": {"subjects": [subject], "roleRef": {"apiGroup": group, "kind": "Role", "name": "dev"}},
    }
    for kind, body in bodies.items():
        found = kinds.by_key(f"{kind.lower()}s.{group}")
        assert found is not None
        meta = {"name": "dev", "namespace": "default"}
        verbs.create(found, "default", {"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, **body})
    token = world.control.user("dev")["token"]
    return str(world.server.kubeconfig(folder / "dev", Credentials(token=token)))


_SECURE = {
    "spec": {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}],
    }
}


@pytest.mark.parametrize("may_make_pods", [True, False])
@pytest.mark.parametrize(
    ("kind", "template", "wrong"),
    [
        (TF, {}, "allowPrivilegeEscalation"),
        (TF, _SECURE, ""),
        (Framework, _SECURE, "seccompProfile"),
    ],
)
async def test_restricted_namespace_is_found_by_preflight(
    tmp_path: Path, kind: Any, template: dict[str, Any], wrong: str, may_make_pods: bool
) -> None:
    async with kind().make_world(tmp_path) as world:
        restrict(world)
        user = {} if may_make_pods else {"kubeconfig": without_pods(world, tmp_path)}
        found = await world.make(podTemplate=template, storage=None, channel="exec", **user).preflight()
        said = [one.sentence for one in found if one.severity is Severity.WRONG]
        assert [wrong in one for one in said] == ([True] if wrong else []), said


async def test_cluster_with_trainer_alone_is_told_of_kubernetes(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world:
        kinds = world.server.cluster.kinds
        kinds.remove("tfjobs.kubeflow.org")
        (missing,) = [one for one in await world.make().preflight() if one.severity is Severity.WRONG]
        assert "has no kind TFJob" in missing.sentence and missing.fix == ""
        kinds.add(Kind("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob", schema={}))
        (missing,) = [one for one in await world.make().preflight() if one.severity is Severity.WRONG]
        assert "`platform: kubernetes`" in missing.fix


async def test_a_server_of_another_authority_is_wrong_and_not_away(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world:
        other = Authority(tmp_path / "other").certificate
        config = yaml.safe_load(world.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(other).decode()
        (tmp_path / "wrong").write_text(yaml.safe_dump(config))
        found = await world.make(kubeconfig=str(tmp_path / "wrong")).preflight()
        [finding] = [one for one in found if one.severity is not Severity.FINE]
        assert finding.severity is Severity.WRONG and "certificate-authority" in finding.sentence


def test_missing_right_mentions_a_deleted_namespace() -> None:
    """A namespace's role bindings are deleted with it, so its own account learns nothing else."""
    refusal = Refusal(status=403, reason="Forbidden", message='tfjobs is forbidden: User "u" cannot create')
    found = submission.error(refusal, "create tfjobs", "gone")
    assert isinstance(found, BadCredentials) and "namespace was deleted" in str(found)


async def test_deleted_namespace_is_mentioned_while_observing(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world, world.make() as platform:
        handle = await accepted(world, platform, "a")
        world.control.fault(method="GET", path="/tfjobs", times=-1, status=403, reason="Forbidden", message="no")
        world.control.break_watches()

        async def refusal() -> str | None:
            try:
                await platform.observe([handle])
            except BadCredentials as error:
                return str(error)
            return None

        assert "namespace was deleted" in await until(refusal)
