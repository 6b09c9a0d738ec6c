"""The fake's Jobs of `batch/v1` end, count and report like those of `pkg/controller/job` of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.fakes.batch_jobs import (
    FAIL_DISRUPTED,
    FOREVER,
    STUBBORN,
    conditions,
    create,
    deaf,
    event,
    exit_rule,
    job_that,
    pods,
    read,
    ready,
    statuses,
    terminating,
    true,
)
from tests.fakes.kubernetes.testing import IMAGE, NAMESPACE, TestCluster, until

pytestmark = pytest.mark.unit

_OVER_LIMIT = ("True", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
_TOO_LATE = ("True", "DeadlineExceeded", "Job was active longer than specified deadline")
_REACHED = ("True", "CompletionsReached", "Reached expected number of succeeded pods")


async def test_succeeded_job_is_complete(api: client.ApiClient) -> None:
    await create(api, "exit 0")
    found = await true(api, "Complete")
    assert conditions(found) == [("SuccessCriteriaMet", *_REACHED), ("Complete", *_REACHED)]
    status = found.status
    assert (status.succeeded, status.failed, status.active, status.ready, status.terminating) == (1, None, None, 0, 0)
    assert status.completion_time == status.conditions[1].last_transition_time and status.start_time
    assert await event(api, "Completed") == ("Normal", "Job completed")
    [pod] = await pods(api)
    assert pod.metadata.finalizers is None, "a counted pod is released"
    assert await event(api, "SuccessfulCreate") == ("Normal", f"Created pod: {pod.metadata.name}")


async def test_failed_job_keeps_its_pod(api: client.ApiClient) -> None:
    await create(api, "exit 3")
    found = await true(api, "Failed")
    assert conditions(found) == [("FailureTarget", *_OVER_LIMIT), ("Failed", *_OVER_LIMIT)]
    assert (found.status.failed, found.status.succeeded, found.status.completion_time) == (1, None, None)
    assert await event(api, "BackoffLimitExceeded") == ("Warning", _OVER_LIMIT[2])
    [pod] = await pods(api)
    assert pod.status.phase == "Failed"


async def test_ended_pod_is_listed_before_it_is_counted(api: client.ApiClient) -> None:
    made = await create(api, "exit 3")
    seen = await statuses(api, made, "Failed")
    [pod] = await pods(api)
    [interim] = [one for one in seen if one.get("uncountedTerminatedPods")]
    assert interim["uncountedTerminatedPods"] == {"failed": [pod.metadata.uid]} and "failed" not in interim
    assert [one["type"] for one in interim["conditions"]] == ["FailureTarget"]
    assert seen[-1]["uncountedTerminatedPods"] == {} and seen[-1]["failed"] == 1


async def test_status_leaves_out_counts_of_zero(api: client.ApiClient) -> None:
    await create(api, FOREVER)
    await ready(api)
    seen = (await read(api)).status
    assert (seen.active, seen.ready, seen.terminating, seen.succeeded, seen.failed) == (1, 1, 0, None, None)


async def test_failed_pod_is_replaced_up_to_the_limit(api: client.ApiClient) -> None:
    await create(api, "exit 3", backoffLimit=2)
    found = await true(api, "Failed")
    assert (found.status.failed, len(await pods(api))) == (3, 3)


async def test_restarts_of_containers_reach_the_limit(api: client.ApiClient) -> None:
    await create(api, "exit 3", policy="OnFailure", backoffLimit=1)
    found = await true(api, "Failed")
    assert conditions(found)[-1] == ("Failed", *_OVER_LIMIT)
    assert found.status.failed == 1, "the pod that still ran"


async def test_ready_counts_running_pods_only(world: TestCluster, api: client.ApiClient) -> None:
    world.control.unschedulable("^j-", "0/1 nodes are available: 1 Insufficient cpu.")
    await create(api, FOREVER)
    found = await job_that(api, lambda job: job.status.active)
    assert (found.status.active, found.status.ready) == (1, 0)
    world.control.schedulable()
    found = await ready(api)
    assert (found.status.active, found.status.ready) == (1, 1)


async def test_terminating_pod_delays_the_final_condition(api: client.ApiClient) -> None:
    await create(api, STUBBORN, activeDeadlineSeconds=1)
    found = await terminating(api)
    assert conditions(found) == [("FailureTarget", *_TOO_LATE)]
    assert (found.status.active, found.status.ready) == (None, 0)
    found = await job_that(api, lambda job: job.status.failed == 1)  # it may be counted a moment later
    assert found.status.terminating == 1
    [pod] = await pods(api)
    assert await event(api, "SuccessfulDelete") == ("Normal", f"Deleted pod: {pod.metadata.name}")
    found = await true(api, "Failed")
    assert conditions(found)[-1] == ("Failed", *_TOO_LATE) and found.status.terminating == 0
    assert await event(api, "DeadlineExceeded") == ("Warning", _TOO_LATE[2])


# podFailurePolicy


async def failed_by_policy(api: client.ApiClient, sentence: str) -> Any:
    """The Job, once its policy has failed it. `{}` in the sentence is its pod."""
    found = await true(api, "Failed")
    [pod] = await pods(api)
    told_once = ("True", "PodFailurePolicy", sentence.format(f"{NAMESPACE}/{pod.metadata.name}"))
    assert conditions(found) == [("FailureTarget", *told_once), ("Failed", *told_once)]
    return found


async def test_exit_code_fails_the_job_by_policy(api: client.ApiClient) -> None:
    policy = {"rules": [exit_rule("Ignore", 4), exit_rule("FailJob", 3)]}
    await create(api, "exit 3", podFailurePolicy=policy, backoffLimit=6)
    sentence = "Container c for pod {} failed with exit code 3 matching FailJob rule at index 1"
    found = await failed_by_policy(api, sentence)
    assert found.status.failed == 1


async def test_exit_code_of_an_init_container_matches(api: client.ApiClient) -> None:
    init = {"name": "first", "image": IMAGE, "command": ["sh", "-c", "exit 5"]}
    main = {"name": "c", "image": IMAGE, "command": ["true"]}
    template = {"spec": {"restartPolicy": "Never", "initContainers": [init], "containers": [main]}}
    rule = {"action": "FailJob", "onExitCodes": {"containerName": "first", "operator": "NotIn", "values": [1]}}
    await create(api, "", template=template, podFailurePolicy={"rules": [rule]}, backoffLimit=6)
    sentence = "Container first for pod {} failed with exit code 5 matching FailJob rule at index 0"
    await failed_by_policy(api, sentence)


async def test_ignored_failure_is_not_counted(api: client.ApiClient) -> None:
    await create(api, "exit 3", podFailurePolicy={"rules": [exit_rule("Ignore", 3), exit_rule("FailJob", 3)]})

    async def is_replaced() -> bool:
        return len(await pods(api)) > 1

    await until(is_replaced)
    found = await read(api)
    assert (found.status.failed, conditions(found)) == (None, [])


async def test_counted_failure_reaches_the_limit(api: client.ApiClient) -> None:
    await create(api, "exit 3", podFailurePolicy={"rules": [exit_rule("Count", 3), exit_rule("FailJob", 3)]})
    assert conditions(await true(api, "Failed"))[-1] == ("Failed", *_OVER_LIMIT)


async def test_preempted_pod_fails_the_job_by_policy(world: TestCluster, api: client.ApiClient) -> None:
    await create(api, FOREVER, podFailurePolicy=FAIL_DISRUPTED, backoffLimit=6)
    await ready(api)
    [pod] = await pods(api)
    world.control.preempt(NAMESPACE, pod.metadata.name)
    await failed_by_policy(api, "Pod {} has condition DisruptionTarget matching FailJob rule at index 0")


async def test_pod_evicted_by_its_node_is_disrupted(world: TestCluster, api: client.ApiClient) -> None:
    await create(api, FOREVER, podFailurePolicy=FAIL_DISRUPTED, backoffLimit=6)
    await ready(api)
    [pod] = await pods(api)
    world.control.evict(NAMESPACE, pod.metadata.name)
    found = await true(api, "Failed")
    assert conditions(found)[-1][2] == "PodFailurePolicy"
    [pod] = await pods(api)
    [condition] = [one for one in pod.status.conditions if one.type == "DisruptionTarget"]
    message = "The node was low on resource: memory."
    assert (condition.reason, condition.message, pod.status.reason) == ("TerminationByKubelet", message, "Evicted")


async def test_pod_evicted_by_the_api_is_disrupted(api: client.ApiClient) -> None:
    await create(api, STUBBORN, podFailurePolicy=FAIL_DISRUPTED, backoffLimit=6)
    pod = await deaf(api)
    eviction = {"metadata": {"name": pod.metadata.name, "namespace": NAMESPACE}}
    await client.CoreV1Api(api).create_namespaced_pod_eviction(pod.metadata.name, NAMESPACE, eviction)
    [pod] = await pods(api)
    [condition] = [one for one in pod.status.conditions if one.type == "DisruptionTarget"]
    assert (condition.reason, condition.message) == ("EvictionByEvictionAPI", "Eviction API: evicting")
    assert conditions(await true(api, "Failed"))[-1][2] == "PodFailurePolicy"


async def test_pod_of_a_lost_node_is_disrupted(world: TestCluster, api: client.ApiClient) -> None:
    await create(api, FOREVER, podFailurePolicy=FAIL_DISRUPTED)
    await ready(api)
    world.control.lose_node("node-0")
    found = await true(api, "Failed")
    assert (conditions(found)[-1][2], found.status.failed) == ("PodFailurePolicy", 1)


async def test_pod_of_an_isolated_node_never_ends(world: TestCluster, api: client.ApiClient) -> None:
    """The Job neither fails nor gets another pod until the node is back, or removed."""
    await create(api, FOREVER, podFailurePolicy=FAIL_DISRUPTED, backoffLimit=6)
    await ready(api)
    world.control.isolate_node("node-0")
    found = await terminating(api)
    assert (found.status.active, found.status.ready, found.status.terminating, conditions(found)) == (None, 0, 1, [])
    [pod] = await pods(api)
    [condition] = [one for one in pod.status.conditions if one.type == "DisruptionTarget"]
    assert (condition.reason, pod.status.phase) == ("DeletionByTaintManager", "Running")
    world.control.lose_node("node-0")
    assert conditions(await true(api, "Failed"))[-1][2] == "PodFailurePolicy"


async def test_pod_ends_when_its_isolated_node_is_back(world: TestCluster, api: client.ApiClient) -> None:
    await create(api, FOREVER, podFailurePolicy=FAIL_DISRUPTED, backoffLimit=6)
    await ready(api)
    world.control.isolate_node("node-0")
    await terminating(api)
    world.control.find_node("node-0")
    found = await true(api, "Failed")
    assert (conditions(found)[-1][2], found.status.failed) == ("PodFailurePolicy", 1)
