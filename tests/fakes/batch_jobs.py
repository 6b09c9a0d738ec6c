"""Jobs of `batch/v1` for tests of the fake cluster, through the official client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubernetes_asyncio import client, watch

from tests.fakes.kubernetes.testing import IMAGE, NAMESPACE, until

#: A pod that was disrupted fails its Job.
FAIL_DISRUPTED = {"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
#: A pod that runs until it is killed.
FOREVER = "sleep 1000"
#: A pod that ignores its deletion for its grace period of one second.
STUBBORN = "trap '' TERM; echo deaf; sleep 1000"


def job(script: str, policy: str = "Never", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": IMAGE, "command": ["sh", "-c", script]}
    template = {"spec": {"restartPolicy": policy, "containers": [container], "terminationGracePeriodSeconds": 1}}
    return {"metadata": {"name": "j"}, "spec": {"template": template, "backoffLimit": 0, **spec}}


def exit_rule(action: str, code: int) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": "In", "values": [code]}}


async def create(api: client.ApiClient, script: str, **spec: Any) -> Any:
    return await client.BatchV1Api(api).create_namespaced_job(NAMESPACE, job(script, **spec))


async def read(api: client.ApiClient) -> Any:
    return await client.BatchV1Api(api).read_namespaced_job("j", NAMESPACE)


async def change(api: client.ApiClient, **spec: Any) -> Any:
    return await client.BatchV1Api(api).patch_namespaced_job("j", NAMESPACE, {"spec": spec})


async def pods(api: client.ApiClient) -> list[Any]:
    found = await client.CoreV1Api(api).list_namespaced_pod(NAMESPACE, label_selector="job-name=j")
    return list(found.items)


async def job_that(api: client.ApiClient, holds: Callable[[Any], object]) -> Any:
    """The Job once this holds for it."""

    async def look() -> Any:
        found = await read(api)
        return found if holds(found) else None

    return await until(look)


async def true(api: client.ApiClient, *kinds: str) -> Any:
    """The Job once all these conditions are true."""
    return await job_that(
        api, lambda found: {one[:2] for one in conditions(found)} >= {(kind, "True") for kind in kinds}
    )


async def ready(api: client.ApiClient, count: int = 1) -> Any:
    """The Job once this number of its pods is ready."""
    return await job_that(api, lambda found: found.status.ready == count)


async def deaf(api: client.ApiClient) -> Any:
    """The stubborn pod, once it ignores its deletion."""
    core = client.CoreV1Api(api)
    await ready(api)
    [pod] = await pods(api)

    async def look() -> bool:
        return "deaf" in await core.read_namespaced_pod_log(pod.metadata.name, NAMESPACE)

    await until(look)
    return pod


async def terminating(api: client.ApiClient) -> Any:
    """The Job once a pod of it terminates."""
    return await job_that(api, lambda found: found.status.terminating)


async def gone(api: client.ApiClient, left: int = 0) -> None:
    """Wait until this number of pods is left."""

    async def look() -> bool:
        return len(await pods(api)) == left

    await until(look)


async def removed(api: client.ApiClient) -> None:
    """Wait until there is no Job."""

    async def look() -> bool:
        return (await client.BatchV1Api(api).list_namespaced_job(NAMESPACE)).items == []

    await until(look)


async def event(api: client.ApiClient, reason: str) -> tuple[str, str]:
    """Type and message of the Job's first event with this reason."""

    async def look() -> Any:
        found = await client.CoreV1Api(api).list_namespaced_event(NAMESPACE)
        told = [one for one in found.items if one.involved_object.kind == "Job" and one.reason == reason]
        return (told[0].type, told[0].message) if told else None

    found: tuple[str, str] = await until(look)
    return found


async def statuses(api: client.ApiClient, made: Any, until_kind: str) -> list[dict[str, Any]]:
    """The status of a new Job after each change until it has this condition."""
    seen: list[dict[str, Any]] = []
    async with watch.Watch() as watched:
        listing, version = client.BatchV1Api(api).list_namespaced_job, made.metadata.resource_version
        async for told in watched.stream(listing, NAMESPACE, resource_version=version, timeout_seconds=30):
            seen.append(told["raw_object"].get("status") or {})
            if any(one["type"] == until_kind for one in seen[-1].get("conditions") or ()):
                return seen
    raise AssertionError(f"no {until_kind}: {seen}")


def conditions(found: Any) -> list[tuple[str, str, str, str]]:
    """Its conditions: type, status, reason, message."""
    return [(one.type, one.status, one.reason, one.message) for one in found.status.conditions or ()]
