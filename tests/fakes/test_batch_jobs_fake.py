"""The fake's Jobs of `batch/v1` behave as `pkg/controller/job` of Kubernetes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.fakes.kubernetes.testing import IMAGE, NAMESPACE, TestCluster, cluster, until

pytestmark = pytest.mark.unit

_FAIL_DISRUPTED = {
    "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}
_ONCE = {"backoffLimit": 0, "completions": 1, "parallelism": 1, "podReplacementPolicy": "Failed"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[TestCluster]:
    async with cluster(tmp_path) as found:
        yield found


@pytest.fixture
async def api(world: TestCluster) -> AsyncIterator[client.ApiClient]:
    async with world.client() as found:
        yield found


def job(script: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": IMAGE, "command": ["sh", "-c", script]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1}}
    return {"metadata": {"name": "j"}, "spec": {"template": template, **_ONCE, **spec}}


async def create(api: client.ApiClient, script: str, **spec: Any) -> None:
    await client.BatchV1Api(api).create_namespaced_job(NAMESPACE, job(script, **spec))


async def read(api: client.ApiClient) -> Any:
    return await client.BatchV1Api(api).read_namespaced_job("j", NAMESPACE)


async def pods(api: client.ApiClient) -> list[Any]:
    found = await client.CoreV1Api(api).list_namespaced_pod(NAMESPACE, label_selector="job-name=j")
    return list(found.items)


async def true(api: client.ApiClient, *kinds: str) -> Any:
    """The Job once all these conditions are true."""

    async def look() -> Any:
        found = await read(api)
        held = {one.type for one in found.status.conditions or () if one.status == "True"}
        return found if held.issuperset(kinds) else None

    return await until(look)


async def running(api: client.ApiClient) -> Any:
    """The Job once its pod is ready."""

    async def look() -> Any:
        found = await read(api)
        return found if found.status.ready else None

    return await until(look)


def reasons(found: Any) -> dict[str, str]:
    return {one.type: one.reason for one in found.status.conditions if one.status == "True"}


async def events(api: client.ApiClient) -> set[str]:
    found = await client.CoreV1Api(api).list_namespaced_event(NAMESPACE)
    return {one.reason for one in found.items if one.involved_object.kind == "Job"}


async def test_succeeded_job_is_complete(api: client.ApiClient) -> None:
    await create(api, "exit 0")
    found = await true(api, "SuccessCriteriaMet", "Complete")
    assert reasons(found) == {"SuccessCriteriaMet": "CompletionsReached", "Complete": "CompletionsReached"}
    assert (found.status.succeeded, found.status.active, found.status.completion_time is None) == (1, 0, False)
    assert {"SuccessfulCreate", "Completed"} <= await events(api)
    [pod] = await pods(api)
    assert pod.metadata.finalizers is None, "a counted pod is released"


async def test_failed_job_keeps_its_pod(api: client.ApiClient) -> None:
    await create(api, "exit 3")
    found = await true(api, "FailureTarget", "Failed")
    assert set(reasons(found).values()) == {"BackoffLimitExceeded"}
    assert (found.status.failed, found.status.completion_time) == (1, None)
    [pod] = await pods(api)
    assert pod.status.phase == "Failed"


async def test_failed_pod_is_replaced_up_to_the_limit(api: client.ApiClient) -> None:
    await create(api, "exit 3", backoffLimit=2)
    found = await true(api, "Failed")
    assert (found.status.failed, len(await pods(api))) == (3, 3)


async def test_ready_counts_running_pods_only(world: TestCluster, api: client.ApiClient) -> None:
    world.control.unschedulable("^j-", "0/1 nodes are available: 1 Insufficient cpu.")
    await create(api, "sleep 1000")

    async def waits() -> Any:
        found = await read(api)
        return found if found.status.active else None

    found = await until(waits)
    assert (found.status.active, found.status.ready) == (1, 0)
    world.control.schedulable()
    found = await running(api)
    assert (found.status.active, found.status.ready) == (1, 1)


async def test_disrupted_pod_fails_the_job_by_policy(world: TestCluster, api: client.ApiClient) -> None:
    await create(api, "sleep 1000", podFailurePolicy=_FAIL_DISRUPTED, backoffLimit=6)
    await running(api)
    [pod] = await pods(api)
    world.control.preempt(NAMESPACE, pod.metadata.name)
    found = await true(api, "Failed")
    [told] = [one for one in found.status.conditions if one.type == "Failed"]
    sentence = f"Pod {NAMESPACE}/{pod.metadata.name} has condition DisruptionTarget matching FailJob rule at index 0"
    assert (told.reason, told.message) == ("PodFailurePolicy", sentence)


async def test_pod_of_a_lost_node_is_counted(world: TestCluster, api: client.ApiClient) -> None:
    await create(api, "sleep 1000", podFailurePolicy=_FAIL_DISRUPTED)
    await running(api)
    world.control.lose_node("node-0")
    found = await true(api, "Failed")
    assert (reasons(found)["Failed"], found.status.failed) == ("PodFailurePolicy", 1)


async def test_deleted_pod_is_not_replaced_before_its_end(world: TestCluster, api: client.ApiClient) -> None:
    await create(api, "trap '' TERM; sleep 1000", backoffLimit=1)
    await running(api)
    [pod] = await pods(api)
    world.control.delete("pods", NAMESPACE, pod.metadata.name)

    async def terminates() -> Any:
        found = await read(api)
        return found if found.status.terminating else None

    found = await until(terminates)
    alive = [one for one in await pods(api) if one.status.phase not in ("Succeeded", "Failed")]
    assert (found.status.terminating, len(alive)) == (1, 1)

    async def is_replaced() -> bool:
        return [one.metadata.name for one in await pods(api)] not in ([], [pod.metadata.name])

    await until(is_replaced)


async def test_suspended_job_loses_its_pods_and_is_not_failed(world: TestCluster, api: client.ApiClient) -> None:
    await create(api, "sleep 1000", podFailurePolicy=_FAIL_DISRUPTED)
    await running(api)
    world.control.suspend(NAMESPACE, "j")
    found = await true(api, "Suspended")
    assert (found.status.active, found.status.failed) == (0, None)

    async def has_none() -> bool:
        return await pods(api) == []

    await until(has_none)
    world.control.suspend(NAMESPACE, "j", False)
    found = await running(api)
    assert [one.reason for one in found.status.conditions if one.type == "Suspended"] == ["JobResumed"]
    assert {"Suspended", "Resumed"} <= await events(api)


async def test_job_created_suspended_has_no_pod(api: client.ApiClient) -> None:
    await create(api, "exit 0", suspend=True)
    found = await true(api, "Suspended")
    assert (await pods(api), found.status.start_time) == ([], None)


async def test_refused_pod_is_an_event_of_the_job(world: TestCluster, api: client.ApiClient) -> None:
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "0"}}}
    await client.CoreV1Api(api).create_namespaced_resource_quota(NAMESPACE, quota)
    await create(api, "exit 0")

    async def is_told() -> bool:
        return "FailedCreate" in await events(api)

    await until(is_told)
    await client.CoreV1Api(api).delete_namespaced_resource_quota("team", NAMESPACE)
    await true(api, "Complete")


async def test_deadline_ends_the_job(api: client.ApiClient) -> None:
    await create(api, "sleep 1000", activeDeadlineSeconds=1)
    found = await true(api, "Failed")
    assert reasons(found) == {"FailureTarget": "DeadlineExceeded", "Failed": "DeadlineExceeded"}


async def test_ended_job_is_removed_after_its_ttl(api: client.ApiClient) -> None:
    await create(api, "exit 0", ttlSecondsAfterFinished=0)

    async def is_gone() -> bool:
        return (await client.BatchV1Api(api).list_namespaced_job(NAMESPACE)).items == [] and await pods(api) == []

    await until(is_gone)


async def test_deleted_job_takes_its_pods_with_it(api: client.ApiClient) -> None:
    await create(api, "sleep 1000")
    await running(api)
    await client.BatchV1Api(api).delete_namespaced_job("j", NAMESPACE, propagation_policy="Background")

    async def is_gone() -> bool:
        return await pods(api) == []

    await until(is_gone)


@pytest.mark.parametrize(
    "spec",
    [
        {"backoffLimit": -1},
        {"podFailurePolicy": _FAIL_DISRUPTED, "podReplacementPolicy": "TerminatingOrFailed"},
        {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    ],
)
async def test_invalid_job_is_refused(api: client.ApiClient, spec: dict[str, Any]) -> None:
    with pytest.raises(client.ApiException) as caught:
        await create(api, "exit 0", **spec)
    assert caught.value.status == 422
