"""The fake API server's objects, through the official client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes_asyncio import client, watch

from tests.fakes.kubernetes.testing import IMAGE, NAMESPACE, TestCluster, until

pytestmark = [pytest.mark.unit, pytest.mark.cluster(controllers=False)]

KUBEFLOW = ("kubeflow.org", "v1", NAMESPACE, "tfjobs")
ADAPTDL = ("adaptdl.petuum.com", "v1", NAMESPACE, "adaptdljobs")
FRAMEWORKS = ("frameworkcontroller.microsoft.com", "v1", NAMESPACE, "frameworks")


@pytest.fixture
def custom(api: client.ApiClient) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(api)


def tfjob(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "tensorflow", "image": IMAGE, "command": ["true"]}
    worker = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": {"Worker": worker}, **spec},
    }


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {"a": "1"}}


def message(error: pytest.ExceptionInfo[client.ApiException]) -> str:
    status = json.loads(error.value.body)
    assert status["kind"] == "Status" and status["code"] == error.value.status
    return str(status["message"])


async def test_name_is_taken_once(custom: client.CustomObjectsApi) -> None:
    made = await custom.create_namespaced_custom_object(*KUBEFLOW, tfjob("a"))
    assert made["metadata"]["uid"] and made["metadata"]["generation"] == 1
    with pytest.raises(client.ApiException) as error:
        await custom.create_namespaced_custom_object(*KUBEFLOW, tfjob("a"))
    assert error.value.status == 409 and message(error) == 'tfjobs.kubeflow.org "a" already exists'


async def test_write_with_an_old_version_is_a_conflict(core: client.CoreV1Api) -> None:
    made = await core.create_namespaced_config_map(NAMESPACE, config_map("a"))
    made.data["a"] = "2"
    await core.replace_namespaced_config_map("a", NAMESPACE, made)
    made.data["a"] = "3"
    with pytest.raises(client.ApiException) as error:
        await core.replace_namespaced_config_map("a", NAMESPACE, made)
    assert error.value.status == 409 and "the object has been modified" in message(error)


async def test_unknown_fields_are_pruned_or_refused(world: TestCluster, custom: client.CustomObjectsApi) -> None:
    made = await custom.create_namespaced_custom_object(*KUBEFLOW, tfjob("a", speed="high"))
    assert "speed" not in made["spec"] and "tfReplicaSpecs" in made["spec"]
    world.control.unknown_fields("refuse")
    with pytest.raises(client.ApiException) as error:
        await custom.create_namespaced_custom_object(*KUBEFLOW, tfjob("b", speed="high"))
    assert error.value.status == 422 and "spec.speed" in message(error)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tfReplicaSpecs": {}}, "spec.tfReplicaSpecs"),
        ({"tfReplicaSpecs": {"Worker": {"replicas": "two"}}}, "spec.tfReplicaSpecs.Worker.replicas"),
        ({"tfReplicaSpecs": {"Boss": {"replicas": 1}}}, "spec.tfReplicaSpecs[Boss]"),
        ({"runPolicy": {"backoffLimit": "none"}}, "spec.runPolicy.backoffLimit"),
    ],
)
async def test_invalid_job_is_refused(custom: client.CustomObjectsApi, change: Any, told: str) -> None:
    with pytest.raises(client.ApiException) as error:
        await custom.create_namespaced_custom_object(*KUBEFLOW, tfjob("a", **change))
    assert error.value.status == 422 and told in message(error)


@pytest.mark.parametrize("name", ["with-hyphen", "Upper", "a" * 64])
async def test_names_of_frameworks_are_short_and_plain(custom: client.CustomObjectsApi, name: str) -> None:
    framework = {"metadata": {"name": name}, "spec": {"executionType": "Start", "taskRoles": []}}
    with pytest.raises(client.ApiException) as error:
        await custom.create_namespaced_custom_object(*FRAMEWORKS, framework)
    assert error.value.status == 422 and "metadata.name" in message(error)


async def test_status_changes_only_through_its_subresource(world: TestCluster, custom: client.CustomObjectsApi) -> None:
    world.needs_fake("an operator writes the status, too")
    given = {**tfjob("a"), "status": {"conditions": [], "replicaStatuses": {}}}
    made = await custom.create_namespaced_custom_object(*KUBEFLOW, given)
    assert "status" not in made
    status = {"status": {"startTime": "2026-01-01T00:00:00Z", "conditions": [], "replicaStatuses": {}}}
    await custom.patch_namespaced_custom_object(*KUBEFLOW, "a", status, _content_type="application/merge-patch+json")
    assert "status" not in await custom.get_namespaced_custom_object(*KUBEFLOW, "a")
    changed = await custom.patch_namespaced_custom_object_status(
        *KUBEFLOW, "a", status, _content_type="application/merge-patch+json"
    )
    assert changed["status"]["startTime"] == "2026-01-01T00:00:00Z" and changed["metadata"]["generation"] == 1


async def test_framework_has_no_status_subresource(custom: client.CustomObjectsApi) -> None:
    framework = {
        "metadata": {"name": "a"},
        "spec": {"executionType": "Start", "taskRoles": []},
        "status": {"state": "x"},
    }
    made = await custom.create_namespaced_custom_object(*FRAMEWORKS, framework)
    assert made["status"] == {"state": "x"}
    with pytest.raises(client.ApiException) as error:
        await custom.get_namespaced_custom_object_status(*FRAMEWORKS, "a")
    assert error.value.status == 404
    stop = {"spec": {"executionType": "Stop"}}
    stopped = await custom.patch_namespaced_custom_object(
        *FRAMEWORKS, "a", stop, _content_type="application/merge-patch+json"
    )
    assert stopped["spec"] == {"executionType": "Stop", "taskRoles": []} and stopped["metadata"]["generation"] == 2


async def test_spec_of_an_adaptdl_job_cannot_change(custom: client.CustomObjectsApi) -> None:
    job = {"metadata": {"name": "a"}, "spec": {"maxReplicas": 1, "template": {"spec": {"containers": []}}}}
    await custom.create_namespaced_custom_object(*ADAPTDL, job)
    with pytest.raises(client.ApiException) as error:
        await custom.patch_namespaced_custom_object(
            *ADAPTDL, "a", {"spec": {"maxReplicas": 2}}, _content_type="application/merge-patch+json"
        )
    assert error.value.status == 422


async def test_every_kind_of_patch_is_applied(core: client.CoreV1Api) -> None:
    await core.create_namespaced_config_map(NAMESPACE, config_map("a", x="1"))
    merge = {"data": {"a": None, "b": "2"}}
    patched = await core.patch_namespaced_config_map(
        "a", NAMESPACE, merge, _content_type="application/merge-patch+json"
    )
    assert patched.data == {"b": "2"}
    operations = [{"op": "add", "path": "/data/c~1d", "value": "3"}, {"op": "remove", "path": "/data/b"}]
    assert (await core.patch_namespaced_config_map("a", NAMESPACE, operations)).data == {"c/d": "3"}
    with pytest.raises(client.ApiException) as error:
        await core.patch_namespaced_config_map("a", NAMESPACE, [{"op": "test", "path": "/data/z", "value": "1"}])
    assert error.value.status == 422
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"z": "1"}}
    made = await core.patch_namespaced_config_map(
        "new", NAMESPACE, applied, field_manager="tests", _content_type="application/apply-patch+yaml"
    )
    assert made.data == {"z": "1"}


async def test_lists_filter_by_label_and_have_pages(core: client.CoreV1Api) -> None:
    for number in range(7):
        await core.create_namespaced_config_map(NAMESPACE, config_map(f"c{number}", odd=str(number % 2)))
    odd = await core.list_namespaced_config_map(NAMESPACE, label_selector="odd=1")
    assert [each.metadata.name for each in odd.items] == ["c1", "c3", "c5"]
    some = await core.list_namespaced_config_map(NAMESPACE, label_selector="odd in (0, 1),odd!=1,!none")
    assert len(some.items) == 4
    names, token = [], None
    while True:
        part = await core.list_namespaced_config_map(NAMESPACE, label_selector="odd", limit=3, _continue=token)
        names += [each.metadata.name for each in part.items]
        if token is None:
            await core.create_namespaced_config_map(NAMESPACE, config_map("c0a", odd="1"))
        if not (token := part.metadata._continue):
            break
    assert names == [f"c{number}" for number in range(7)]


async def test_continued_list_may_be_too_old(world: TestCluster, core: client.CoreV1Api) -> None:
    for number in range(3):
        await core.create_namespaced_config_map(NAMESPACE, config_map(f"c{number}"))
    part = await core.list_namespaced_config_map(NAMESPACE, limit=1)
    world.control.compact()
    with pytest.raises(client.ApiException) as error:
        await core.list_namespaced_config_map(NAMESPACE, limit=1, _continue=part.metadata._continue)
    assert error.value.status == 410 and json.loads(error.value.body)["reason"] == "Expired"


async def test_watch_reports_objects_that_start_or_stop_matching(core: client.CoreV1Api) -> None:
    listed = await core.list_namespaced_config_map(NAMESPACE)
    await core.create_namespaced_config_map(NAMESPACE, config_map("a", mine="yes"))
    await core.create_namespaced_config_map(NAMESPACE, config_map("b", mine="no"))
    for value in ("no", "yes"):
        label = {"metadata": {"labels": {"mine": value}}}
        await core.patch_namespaced_config_map("a", NAMESPACE, label, _content_type="application/merge-patch+json")
    await core.delete_namespaced_config_map("a", NAMESPACE)
    told = []
    async with watch.Watch() as events:
        async for event in events.stream(
            core.list_namespaced_config_map,
            NAMESPACE,
            label_selector="mine=yes",
            timeout_seconds=1,
            resource_version=listed.metadata.resource_version,
        ):
            told.append((event["type"], event["object"].metadata.name))
    assert told == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a"), ("DELETED", "a")]


async def test_watch_from_a_forgotten_version_gets_410(world: TestCluster, core: client.CoreV1Api) -> None:
    listed = await core.list_namespaced_config_map(NAMESPACE)
    await core.create_namespaced_config_map(NAMESPACE, config_map("a"))
    world.control.compact()
    with pytest.raises(client.ApiException) as error:
        async with watch.Watch() as events:
            async for _ in events.stream(
                core.list_namespaced_config_map, NAMESPACE, resource_version=listed.metadata.resource_version
            ):
                pass
    assert error.value.status == 410


@pytest.mark.cluster(controllers=False, bookmark_every=0.1)
async def test_bookmarks_report_the_position_of_a_watch(world: TestCluster, core: client.CoreV1Api) -> None:
    world.needs_fake("a real server sends bookmarks about once a minute")
    listed = await core.list_namespaced_config_map(NAMESPACE)
    await core.create_namespaced_secret(NAMESPACE, {"metadata": {"name": "other"}})
    async with watch.Watch() as events:
        async for event in events.stream(
            core.list_namespaced_config_map,
            NAMESPACE,
            resource_version=listed.metadata.resource_version,
            allow_watch_bookmarks=True,
            timeout_seconds=5,
        ):
            assert event["type"] == "BOOKMARK"
            break
    version = event["raw_object"]["metadata"]["resourceVersion"]
    assert int(version) == world.fake.cluster.store.revision


async def test_owned_objects_are_deleted_with_their_owner(core: client.CoreV1Api) -> None:
    owner = await core.create_namespaced_config_map(NAMESPACE, config_map("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
    for name in ("one", "two"):
        owned = config_map(name)
        owned["metadata"]["ownerReferences"] = [{**reference, "blockOwnerDeletion": name == "two"}]
        owned["metadata"]["finalizers"] = ["tests/hold"] if name == "two" else []
        await core.create_namespaced_config_map(NAMESPACE, owned)

    async def left() -> list[str]:
        listed = await core.list_namespaced_config_map(NAMESPACE)
        return [each.metadata.name for each in listed.items if each.metadata.name != "kube-root-ca.crt"]

    await core.delete_namespaced_config_map("owner", NAMESPACE, body={"propagationPolicy": "Foreground"})
    assert "foregroundDeletion" in str(await core.read_namespaced_config_map("owner", NAMESPACE))

    async def only_the_held() -> bool:
        return sorted(await left()) == ["owner", "two"]

    async def nothing() -> bool:
        return not await left()

    await until(only_the_held)
    await core.patch_namespaced_config_map(
        "two", NAMESPACE, {"metadata": {"finalizers": None}}, _content_type="application/merge-patch+json"
    )
    await until(nothing)


async def test_orphaned_objects_stay(core: client.CoreV1Api) -> None:
    owner = await core.create_namespaced_config_map(NAMESPACE, config_map("owner"))
    owned = config_map("one")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
    ]
    await core.create_namespaced_config_map(NAMESPACE, owned)
    await core.delete_namespaced_config_map("owner", NAMESPACE, propagation_policy="Orphan")

    async def alone() -> bool:
        return not (await core.read_namespaced_config_map("one", NAMESPACE)).metadata.owner_references

    await until(alone)


async def test_finalizer_holds_an_object(core: client.CoreV1Api) -> None:
    held = config_map("a")
    held["metadata"]["finalizers"] = ["tests/hold"]
    await core.create_namespaced_config_map(NAMESPACE, held)
    await core.delete_namespaced_config_map("a", NAMESPACE)
    assert (await core.read_namespaced_config_map("a", NAMESPACE)).metadata.deletion_timestamp
    await core.patch_namespaced_config_map(
        "a", NAMESPACE, {"metadata": {"finalizers": None}}, _content_type="application/merge-patch+json"
    )
    with pytest.raises(client.ApiException) as error:
        await core.read_namespaced_config_map("a", NAMESPACE)
    assert error.value.status == 404


async def test_recreated_object_of_the_same_name_is_kept(core: client.CoreV1Api) -> None:
    await core.create_namespaced_config_map(NAMESPACE, config_map("a"))
    with pytest.raises(client.ApiException) as error:
        await core.delete_namespaced_config_map("a", NAMESPACE, body={"preconditions": {"uid": "another"}})
    assert error.value.status == 409
    assert (await core.read_namespaced_config_map("a", NAMESPACE)).data


async def test_namespace_is_deleted_with_its_contents(core: client.CoreV1Api, custom: client.CustomObjectsApi) -> None:
    team = f"{NAMESPACE}-team"
    await core.create_namespace({"metadata": {"name": team}})

    async def has_account() -> bool:
        found = (await core.list_namespaced_service_account(team)).items
        return any(each.metadata.name == "default" for each in found)

    await until(has_account)
    await core.create_namespaced_config_map(team, config_map("a"))
    await core.delete_namespace(team)
    with pytest.raises(client.ApiException) as error:
        await core.create_namespaced_config_map(team, config_map("b"))
    assert error.value.status in (403, 404)

    async def gone() -> bool:
        return all(each.metadata.name != team for each in (await core.list_namespace()).items)

    await until(gone)
    with pytest.raises(client.ApiException) as error:
        await custom.create_namespaced_custom_object("kubeflow.org", "v1", team, "tfjobs", tfjob("a"))
    assert error.value.status == 404 and message(error) == f'namespaces "{team}" not found'


async def test_dry_run_changes_nothing(core: client.CoreV1Api) -> None:
    await core.create_namespaced_config_map(NAMESPACE, config_map("a"), dry_run="All")
    with pytest.raises(client.ApiException) as error:
        await core.read_namespaced_config_map("a", NAMESPACE)
    assert error.value.status == 404


async def test_discovery_lists_served_kinds(api: client.ApiClient) -> None:
    groups = await client.ApisApi(api).get_api_versions()
    assert {"kubeflow.org", "frameworkcontroller.microsoft.com", "adaptdl.petuum.com"} <= {
        g.name for g in groups.groups
    }
    resources = await client.CustomObjectsApi(api).get_api_resources("kubeflow.org", "v1")
    named = {each.name: each.verbs for each in resources.resources}
    assert {"tfjobs", "tfjobs/status", "pytorchjobs"} <= set(named) and "watch" in named["tfjobs"]
    assert (await client.VersionApi(api).get_code()).major == "1"


async def test_kind_comes_and_goes_with_its_definition(world: TestCluster, custom: client.CustomObjectsApi) -> None:
    world.control.delete("customresourcedefinitions.apiextensions.k8s.io", "", "tfjobs.kubeflow.org")
    with pytest.raises(client.ApiException) as error:
        await custom.create_namespaced_custom_object(*KUBEFLOW, tfjob("a"))
    assert error.value.status == 404
