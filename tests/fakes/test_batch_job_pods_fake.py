"""The pods of the fake's Jobs: how many there are, when one is replaced, and what a deletion does."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.fakes.batch_jobs import (
    FAIL_DISRUPTED,
    FOREVER,
    STUBBORN,
    change,
    conditions,
    create,
    deaf,
    event,
    gone,
    job_that,
    pods,
    read,
    ready,
    removed,
    statuses,
    terminating,
    true,
)
from tests.fakes.kubernetes.controllers.batch.back_off import Record, finished_at
from tests.fakes.kubernetes.testing import NAMESPACE, TestCluster, until

pytestmark = pytest.mark.unit

#: Long enough for several looks of the controller.
_QUIET_S = 0.3


# numbers


async def test_pod_has_the_marks_of_its_job(api: client.ApiClient) -> None:
    made = await create(api, FOREVER)
    await ready(api)
    [pod] = await pods(api)
    uid, prefix = made.metadata.uid, "batch.kubernetes.io"
    assert pod.metadata.generate_name == "j-" and pod.metadata.finalizers == [f"{prefix}/job-tracking"]
    own = {"controller-uid": uid, "job-name": "j"}
    assert pod.metadata.labels == {**own, **{f"{prefix}/{name}": value for name, value in own.items()}}
    [owner] = pod.metadata.owner_references
    assert (owner.api_version, owner.kind, owner.name, owner.uid) == ("batch/v1", "Job", "j", uid)
    assert owner.controller and owner.block_owner_deletion


async def test_no_more_pods_than_completions_are_left(api: client.ApiClient) -> None:
    made = await create(api, "exit 0", completions=3, parallelism=2)
    seen = await statuses(api, made, "Complete")
    assert max(one.get("active", 0) for one in seen) == 2
    assert (seen[-1]["succeeded"], len(await pods(api))) == (3, 3)


async def test_one_success_is_enough_without_completions(world: TestCluster, api: client.ApiClient) -> None:
    """No pod is created after it, and the others may end."""
    world.control.pretend("job-name=j", seconds=1000)
    await create(api, FOREVER, parallelism=2, backoffLimit=1)
    await ready(api, 2)
    first, second = sorted(one.metadata.name for one in await pods(api))
    core = client.CoreV1Api(api)
    await core.patch_namespaced_pod_status(first, NAMESPACE, {"status": {"phase": "Succeeded"}})
    found = await job_that(api, lambda job: job.status.succeeded == 1)
    assert (found.status.active, conditions(found), len(await pods(api))) == (1, [], 2)
    await core.patch_namespaced_pod_status(second, NAMESPACE, {"status": {"phase": "Failed"}})
    found = await true(api, "Complete")
    assert (found.status.succeeded, found.status.failed, len(await pods(api))) == (1, 1, 2)


async def test_job_without_completions_to_reach_is_complete(api: client.ApiClient) -> None:
    await create(api, "exit 0", completions=0)
    found = await true(api, "Complete")
    assert (found.status.succeeded, await pods(api)) == (None, [])


async def test_surplus_pod_is_deleted_and_does_not_count(api: client.ApiClient) -> None:
    await create(api, FOREVER, completions=2, parallelism=2)
    await ready(api, 2)
    await change(api, parallelism=1)
    await ready(api, 1)
    await gone(api, left=1)
    found = await read(api)
    assert (found.status.active, found.status.failed) == (1, None)
    assert (await event(api, "SuccessfulDelete"))[0] == "Normal"


async def test_refused_pod_is_an_event_of_the_job(api: client.ApiClient) -> None:
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "0"}}}
    await client.CoreV1Api(api).create_namespaced_resource_quota(NAMESPACE, quota)
    await create(api, "exit 0")
    kind, message = await event(api, "FailedCreate")
    assert kind == "Warning" and message.startswith('Error creating: pods "j-')
    assert "is forbidden: exceeded quota: team, requested: pods=1, used: pods=0, limited: pods=0" in message
    assert (await read(api)).status.active is None
    await client.CoreV1Api(api).delete_namespaced_resource_quota("team", NAMESPACE)
    await true(api, "Complete")


async def test_job_of_another_controller_is_left_alone(api: client.ApiClient) -> None:
    await create(api, "exit 0", managedBy="kueue.x-k8s.io/multikueue")
    await asyncio.sleep(_QUIET_S)
    found = await read(api)
    assert (await pods(api), conditions(found), found.status.start_time) == ([], [], None)


# replacement


async def test_deleted_pod_is_not_replaced_before_its_end(world: TestCluster, api: client.ApiClient) -> None:
    await create(api, STUBBORN, backoffLimit=1, podReplacementPolicy="Failed")
    pod = await deaf(api)
    world.control.delete("pods", NAMESPACE, pod.metadata.name)
    found = await terminating(api)
    assert (found.status.active, found.status.failed, len(await pods(api))) == (None, None, 1)
    found = await ready(api)
    assert found.status.failed == 1


async def test_deleted_pod_is_replaced_while_it_terminates(world: TestCluster, api: client.ApiClient) -> None:
    await create(api, STUBBORN, backoffLimit=1)
    pod = await deaf(api)
    world.control.delete("pods", NAMESPACE, pod.metadata.name)
    found = await job_that(api, lambda job: job.status.active and job.status.terminating)
    assert (found.status.failed, found.status.terminating, len(await pods(api))) == (1, 1, 2)


@pytest.mark.cluster(back_off=1.5)
async def test_deleted_pod_without_a_node_is_failed_by_the_collector(world: TestCluster, api: client.ApiClient) -> None:
    world.control.unschedulable("^j-", "0/1 nodes are available: 1 Insufficient cpu.")
    await create(api, FOREVER, podReplacementPolicy="Failed")
    await job_that(api, lambda job: job.status.active)
    [pod] = await pods(api)
    world.control.delete("pods", NAMESPACE, pod.metadata.name)
    found = await terminating(api)  # the collector waits for three seconds
    assert found.status.failed is None
    found = await true(api, "Failed")
    assert (conditions(found)[-1][2], found.status.failed) == ("BackoffLimitExceeded", 1)
    await gone(api)


def ended_pod(second: int, phase: str = "Failed") -> dict[str, Any]:
    at = f"2030-01-01T00:00:{second:02}Z"
    terminated = {"terminated": {"exitCode": 1, "finishedAt": at}}
    meta = {"creationTimestamp": "2030-01-01T00:00:00Z"}
    return {"metadata": meta, "status": {"phase": phase, "containerStatuses": [{"name": "c", "state": terminated}]}}


def test_back_off_doubles_and_a_success_clears_it() -> None:
    one = Record().after([], [ended_pod(1)])
    assert one.failures == 1 and one.after([], []) == one
    three = one.after([], [ended_pod(9), ended_pod(5)])
    assert (three.failures, three.last) == (3, finished_at(ended_pod(9)))
    assert three.after([ended_pod(20)], []) == Record()
    after_success = three.after([ended_pod(20)], [ended_pod(19), ended_pod(21)])
    assert after_success == Record(1, finished_at(ended_pod(21)))


def test_back_off_has_a_maximum() -> None:
    now = datetime.datetime.now(datetime.UTC)
    waits = [Record(failures, now).left_s(10.0) for failures in (1, 2, 3, 7, 100)]
    assert [round(wait) for wait in waits] == [10, 20, 40, 600, 600]
    assert Record().left_s(10.0) == 0.0


def test_end_of_a_pod_without_containers_is_estimated() -> None:
    pod: dict[str, Any] = {"metadata": {"creationTimestamp": "2030-01-01T00:00:00Z"}, "status": {"phase": "Failed"}}
    assert finished_at(pod).second == 0
    pod["metadata"] |= {"deletionTimestamp": "2030-01-01T00:00:40Z", "deletionGracePeriodSeconds": 30}
    assert finished_at(pod).second == 10
    moment = {"lastTransitionTime": "2030-01-01T00:00:20Z"}
    pod["status"]["conditions"] = [{"type": "Ready", "status": "False", **moment}]
    assert finished_at(pod).second == 20


# suspension


async def test_suspended_job_loses_its_pods_and_is_not_failed(world: TestCluster, api: client.ApiClient) -> None:
    await create(api, FOREVER, podFailurePolicy=FAIL_DISRUPTED)
    first = (await ready(api)).status.start_time
    world.control.suspend(NAMESPACE, "j")
    found = await true(api, "Suspended")
    assert conditions(found) == [("Suspended", "True", "JobSuspended", "Job suspended")]
    assert (found.status.active, found.status.failed, found.status.start_time) == (None, None, first)
    await gone(api)
    assert (await read(api)).status.failed is None
    assert await event(api, "Suspended") == ("Normal", "Job suspended")


async def test_resumed_job_starts_again(world: TestCluster, api: client.ApiClient) -> None:
    await create(api, FOREVER, suspend=True)
    found = await true(api, "Suspended")
    assert (await pods(api), found.status.start_time) == ([], None)
    world.control.suspend(NAMESPACE, "j", False)
    found = await ready(api)
    assert conditions(found) == [("Suspended", "False", "JobResumed", "Job resumed")]
    assert found.status.start_time == found.status.conditions[0].last_transition_time
    assert await event(api, "Resumed") == ("Normal", "Job resumed")


async def test_deadline_of_a_suspended_job_does_not_pass(world: TestCluster, api: client.ApiClient) -> None:
    await create(api, FOREVER, suspend=True, activeDeadlineSeconds=1)
    await true(api, "Suspended")
    world.control.suspend(NAMESPACE, "j", False)
    found = await true(api, "Failed")
    assert [one[0] for one in conditions(found)] == ["Suspended", "FailureTarget", "Failed"], "each keeps its place"


# deletion


async def test_ended_job_is_removed_after_its_ttl(api: client.ApiClient) -> None:
    await create(api, "exit 0", ttlSecondsAfterFinished=0)
    await removed(api)
    await gone(api)


async def test_deleted_job_takes_its_pods_with_it(api: client.ApiClient) -> None:
    await create(api, FOREVER)
    await ready(api)
    await client.BatchV1Api(api).delete_namespaced_job("j", NAMESPACE, propagation_policy="Background")
    assert (await client.BatchV1Api(api).list_namespaced_job(NAMESPACE)).items == []
    await gone(api)


async def test_job_waits_for_its_pods_in_the_foreground(api: client.ApiClient) -> None:
    await create(api, STUBBORN, podReplacementPolicy="Failed")
    await deaf(api)
    await client.BatchV1Api(api).delete_namespaced_job("j", NAMESPACE, propagation_policy="Foreground")
    found = await terminating(api)
    assert found.metadata.finalizers == ["foregroundDeletion"] and found.metadata.deletion_timestamp
    assert (found.status.active, conditions(found)) == (None, [])
    [pod] = await pods(api)
    assert pod.metadata.finalizers is None, "the controller lets go of it"
    await removed(api)
    assert await pods(api) == []


async def test_deletion_without_a_policy_leaves_the_pods(api: client.ApiClient) -> None:
    await create(api, FOREVER)
    await ready(api)
    answer = await client.BatchV1Api(api).delete_namespaced_job_with_http_info("j", NAMESPACE)
    assert "child pods are preserved by default when jobs are deleted" in answer[2]["Warning"]
    await removed(api)

    async def is_orphaned() -> Any:
        [pod] = await pods(api)
        return None if pod.metadata.finalizers else pod

    pod = await until(is_orphaned)
    assert (pod.status.phase, pod.metadata.owner_references, pod.metadata.deletion_timestamp) == ("Running", None, None)
