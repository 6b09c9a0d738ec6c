"""A job and its pods come by streams of their own: what one has told, the other may not have yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.job import JobState
from nni_manager.kubernetes.api.client import Object, Refusal
from nni_manager.kubernetes.api.informer import Informer
from nni_manager.kubernetes.api.names import EVENTS, JOB, PODS, Resource
from nni_manager.kubernetes.jobs.job_memory import JobMemory
from nni_manager.kubernetes.observing.following import Following

pytestmark = [pytest.mark.unit, pytest.mark.looptime]

JOBS = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")
RUNNING_POD: Object = {
    "metadata": {"name": "a-worker-0", "uid": "p", "resourceVersion": "5", "labels": {JOB: "a"}},
    "status": {"phase": "Running"},
}
ENDED_POD: Object = {
    "metadata": {**RUNNING_POD["metadata"], "resourceVersion": "7"},
    "status": {
        "phase": "Failed",
        "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 7, "reason": "Error"}}}],
    },
}
FAILED_JOB: Object = {"kind": "TFJob", "metadata": {"name": "a", "uid": "u", "resourceVersion": "8"}}


FORBIDDEN = Refusal(status=403, reason="Forbidden", message="no")


class Cluster:
    """Lists pods, once it has been asked in vain so often as there are troubles."""

    def __init__(self, *troubles: Exception) -> None:
        self.asked: list[Any] = []
        self._troubles = list(troubles)

    async def call(self, method: str, path: str, *, query: Any) -> Object:
        self.asked.append((path, query))
        if self._troubles:
            raise self._troubles.pop(0)
        return {"items": [ENDED_POD]}


class Stage:
    """One followed job; the watch of pods has not reported the end of its pod."""

    def __init__(self, cluster: Cluster | Strange) -> None:
        async def client() -> Any:
            return cluster

        def informer(resource: Resource) -> Informer:
            return Informer(resource, "default", client, query=(), on_trouble=lambda informer: None)

        self.woken = asyncio.Event()
        jobs, pods, events = (informer(resource) for resource in (JOBS, PODS, EVENTS))
        self.following = Following(jobs, pods, events, _read, lambda name: self.woken.set())
        self.memory = self.following.follow(JobMemory(job_name="a", name="a", uid="u", container="main"))
        self.following.on_object(PODS, RUNNING_POD)

    def report(self) -> Observation:
        self.woken.clear()
        return self.following.report(self.memory)

    async def end(self) -> Observation:
        """What is told of the job's end, in the end."""
        self.following.on_object(JOBS, FAILED_JOB)
        assert self.report().state is JobState.RUNNING
        async with asyncio.timeout(100):
            await self.woken.wait()
        return self.report()


def _read(job: Object) -> Observation:
    return Observation(state=JobState.FAILED, message="the job failed")


async def test_pods_of_failed_job_are_queried_without_evidence() -> None:
    cluster = Cluster(PlatformUnavailable("away"), Refusal(status=401, reason="Unauthorized", message=""))
    stage = Stage(cluster)
    told = await stage.end()
    assert (told.state, told.exit_code) == (JobState.FAILED, 7)
    assert cluster.asked == [("/api/v1/namespaces/default/pods", [("labelSelector", f"{JOB}=a")])] * 3
    stage.following.close()


async def test_pod_query_is_retried_after_denial() -> None:
    """As of a server that was just started."""
    stage = Stage(Cluster(*[FORBIDDEN] * 5))
    assert (await stage.end()).exit_code == 7
    stage.following.close()


async def test_failed_job_ends_when_pods_cannot_be_listed() -> None:
    stage = Stage(Cluster(*[FORBIDDEN] * 100))
    told = await stage.end()
    assert (told.state, told.exit_code) == (JobState.FAILED, None)
    stage.following.close()


async def test_pods_with_evidence_cause_no_query() -> None:
    cluster = Cluster()
    stage = Stage(cluster)
    stage.following.on_object(PODS, ENDED_POD)
    stage.following.on_object(JOBS, FAILED_JOB)
    assert stage.report().exit_code == 7 and cluster.asked == []
    stage.following.close()


async def test_exited_adapter_makes_no_calls() -> None:
    cluster = Cluster(*[PlatformUnavailable("away")] * 100)
    stage = Stage(cluster)
    stage.following.on_object(JOBS, FAILED_JOB)
    stage.report()
    (asking,) = (task for task in asyncio.all_tasks() if task.get_name() == "pods of a")
    stage.following.close()
    await asyncio.wait([asking])
    assert asking.cancelled()


class Strange:
    """Answers with an object of another kind a number of times; then with 404."""

    def __init__(self, answers: int) -> None:
        self._answers = answers

    async def call(self, method: str, path: str, *, query: Any = ()) -> Object:
        self._answers -= 1
        if self._answers >= 0:
            return {"items": [{"hello": "from a proxy"}]}
        raise Refusal(status=404, reason="NotFound", message="")


async def test_job_is_queried_until_server_reports_it_gone() -> None:
    stage = Stage(Strange(2))
    stage.woken.clear()
    stage.following.on_listed(JOBS, asyncio.get_running_loop().time() + 1, frozenset())
    async with asyncio.timeout(100):
        await stage.woken.wait()
    assert stage.memory.removed_s is not None
    stage.following.close()


async def test_failed_job_ends_when_pods_are_unreadable() -> None:
    stage = Stage(Strange(1))
    assert (await stage.end()).state is JobState.FAILED
    stage.following.close()


@pytest.mark.parametrize("has_run", [False, True])
async def test_an_event_is_news_of_a_job_that_has_not_run(has_run: bool) -> None:
    """It may say why the job waits; a job that runs is observed at the changes of its pods."""
    stage = Stage(Cluster())
    stage.memory.has_run = has_run
    stage.woken.clear()
    meta = {"name": "e", "uid": "e", "resourceVersion": "9"}
    event = {"metadata": meta, "involvedObject": {"name": "a-worker-0"}, "reason": "Pulling"}
    stage.following.on_object(EVENTS, event)
    assert stage.woken.is_set() is not has_run and stage.memory.events == {"e": event}
    stage.following.close()


async def test_a_job_that_is_followed_later_has_the_events_from_before() -> None:
    stage = Stage(Cluster())
    for name, whose in (("e", "b-worker-0"), ("f", "bb"), ("g", "b")):
        meta = {"name": name, "uid": name, "resourceVersion": "9"}
        stage.following.on_object(EVENTS, {"metadata": meta, "involvedObject": {"name": whose}})
    gone: Object = {"metadata": {"name": "g", "uid": "g", "resourceVersion": "10"}, "involvedObject": {"name": "b"}}
    stage.following.on_removed(EVENTS, gone, was_seen=True)
    later = stage.following.follow(JobMemory(job_name="b", name="b", uid="v", container="main"))
    assert list(later.events) == ["e"]
    stage.following.close()
