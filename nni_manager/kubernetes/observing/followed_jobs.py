"""The jobs of one training service while it is connected: reports from informers, logs, and results.

If runners do not post results, they are read from mounted storage or from pods.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import NotFound, PlatformError, PlatformUnavailable
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.service import Wait
from nni_manager.kubernetes.api.client import Object, Refusal
from nni_manager.kubernetes.api.cluster import Cluster, Kind
from nni_manager.kubernetes.api.names import EVENTS, PODS, Resource
from nni_manager.kubernetes.exec.channel import ExecChannel
from nni_manager.kubernetes.exec.channel_selection import runner_container
from nni_manager.kubernetes.exec.stream import execute
from nni_manager.kubernetes.jobs import draft, submission
from nni_manager.kubernetes.jobs.cluster_objects import ClusterObjects
from nni_manager.kubernetes.jobs.job_memory import JobMemory
from nni_manager.kubernetes.jobs.pod import RUNNER_FILE, RUNNER_MOUNT
from nni_manager.kubernetes.observing.following import Following
from nni_manager.platform_kit.contract import Host
from nni_manager.platform_kit.tasks import ended
from nni_manager.shared_storage.pull import Pull
from trial_runner import protocol

#: Seconds to wait for the first list.
_LIST_S = 20.0
#: Seconds between two queries about a used-up quota.
_QUOTA_AGAIN_S = 60.0


class FollowedJobs:
    """The followed jobs of one service, created by `follow`. Answers come from memory: the last state counts until the
    cluster reports another."""

    def __init__(
        self,
        cluster: Cluster,
        kind: Kind,
        following: Following,
        reading: ExecChannel | StorageChannel | None,
        service: ClusterObjects,
        *,
        restarts: bool,
    ) -> None:
        self._cluster = cluster
        self._kind = kind
        self._restarts = restarts
        self._following = following
        self._reading = reading
        self._service = service
        self._mending: asyncio.Task[None] | None = None
        #: The used-up quota for which jobs without pods wait, if one is known.
        self._quota: Wait | None = None
        self._quota_again_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    def report(self, handle: JobHandle) -> Observation:
        told, memory = submission.data_of(handle), self.memory(handle)
        found = self._following.report(memory)
        if memory.is_slow_to_start and (self._mending is None or self._mending.done()):
            self._mending = asyncio.create_task(self._mend(), name="objects that pods mount")
        if memory.lacks_reason:
            self._look_at_quota(memory)
            found = dataclasses.replace(found, wait=self._quota or found.wait)
        if self._reading is not None:
            found = self._reading.seen(memory, found)
        return dataclasses.replace(found, link=told.link) if told.link else found

    def memory(self, handle: JobHandle, created: Object | None = None) -> JobMemory:
        """The memory of a job, which is followed from now on. `created`: its object if the server just created it."""
        told = submission.data_of(handle)
        known = self._following.find(told.name)
        if known is not None and known.uid == told.uid:
            return known
        made_s = asyncio.get_running_loop().time() if created is not None else float("-inf")
        memory = self._following.follow(
            JobMemory(
                job_name=handle.job_name,
                name=told.name,
                uid=told.uid,
                container=self._kind.container,
                object=created,
                made_s=made_s,
                is_restarted=self._restarts,
                keeps_failed_pods=self._kind.keeps_failed_pods,
                memory_field=self._kind.memory_field,
            )
        )
        if self._reading is not None:
            self._reading.follow(memory, told.folder)
        return memory

    async def _mend(self) -> None:
        """Recreates removed shared objects that pods wait for."""
        with suppress(Refusal, PlatformError):
            await self._service.mend()

    def _look_at_quota(self, memory: JobMemory) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._quota_again_s and (self._asking is None or self._asking.done()):
            self._quota_again_s = now_s + _QUOTA_AGAIN_S
            self._asking = asyncio.create_task(self._ask_for_quota(memory), name=f"quota for {memory.name}")

    async def _ask_for_quota(self, memory: JobMemory) -> None:
        """Learns whether a quota is used up: some operators retry without an event."""
        with suppress(PlatformError):
            self._quota = await draft.lacking_quota(self._cluster, memory.object or {})
            if self._quota is not None:
                self._following.wake(memory)

    async def close(self) -> None:
        await ended(self._mending, self._asking)

    def forget(self, memory: JobMemory) -> None:
        self._following.forget(memory.name)
        if self._reading is not None:
            self._reading.forget(memory)


async def follow(
    cluster: Cluster,
    resource: Resource,
    kind: Kind,
    service: ClusterObjects,
    host: Host,
    stack: AsyncExitStack,
    *,
    sends_code: bool,
    restarts: bool,
    workloads: Resource | None = None,
) -> FollowedJobs:
    """The followed jobs, after the first list; followed until the stack is left.

    `restarts`: the operator restarts ended processes. `workloads`: Kueue's kind, if the jobs have a queue.

    Raises PlatformUnavailable and BadCredentials.
    """
    jobs, pods, events = (cluster.informer(one) for one in (resource, PODS, EVENTS))
    try:
        async with asyncio.timeout(_LIST_S):
            for informer in (jobs, pods):
                await informer.ready()
    except TimeoutError:
        raise PlatformUnavailable(f"the cluster did not list its objects within {_LIST_S:g} s") from None
    queued = cluster.informer(workloads) if workloads is not None else None
    following = Following(jobs, pods, events, kind.read, host.wake, queued)
    stack.callback(following.close)
    found = reading(service, cluster, host, sends_code=sends_code)
    if found is not None:
        stack.push_async_callback(found.close)
        following.on_change = found.notice
    jobs_followed = FollowedJobs(cluster, kind, following, found, service, restarts=restarts)
    stack.push_async_callback(jobs_followed.close)
    return jobs_followed


#: Seconds that the end of a job waits for its files on the storage.
_PATIENCE_S = 2.0
#: Seconds for a command in a pod, which may transfer the code.
_COMMAND_S = 600.0


def reading(
    service: ClusterObjects, cluster: Cluster, host: Host, *, sends_code: bool
) -> ExecChannel | StorageChannel | None:
    """The reading of a service's results; None: runners post them."""
    if service.channel in (protocol.EXEC, protocol.PUSH_OR_EXEC):
        run = partial(_execute, cluster)
        return ExecChannel(host, run, service.record, service.reach.note, sends_code=sends_code)
    return StorageChannel(service, host) if service.storage is not None else None


class StorageChannel:
    """The reading of results from storage that is mounted here, with the methods of `ExecChannel`."""

    def __init__(self, service: ClusterObjects, host: Host) -> None:
        self._service = service
        self._pull = Pull(host)
        self._task = asyncio.create_task(self._pull.run(), name=f"pull {host.experiment_id}")

    def follow(self, memory: JobMemory, attempt_directory: str) -> None:
        folder = self._service.folder(attempt_directory)
        if folder is not None:
            self._pull.follow(memory.job_name, folder.here, Path(attempt_directory))

    def notice(self, memory: JobMemory) -> None:
        """Does nothing: running jobs write results on their own."""

    def seen(self, memory: JobMemory, report: Observation) -> Observation:
        if self._task.done():
            self._task.result()  # raises a bug's exception
        if not report.state.is_final or memory.all_pods == []:
            return report
        self._pull.finish(memory.job_name, _PATIENCE_S)
        if self._pull.is_over(memory.job_name):
            return report
        return Observation(state=JobState.RUNNING, started_ms=report.started_ms, place=report.place)

    def forget(self, memory: JobMemory) -> None:
        self._pull.forget(memory.job_name)

    async def close(self) -> None:
        await ended(self._task)


async def _execute(cluster: Cluster, pod: Object, verb: str, stdin: AsyncIterator[bytes]) -> bytes:
    """The output of a command in a pod, with a retry if credentials have expired."""
    path = PODS.path(cluster.namespace, pod["metadata"]["name"])
    command = ["python3", f"{RUNNER_MOUNT}/{RUNNER_FILE}", verb]
    container = str(runner_container(pod).get("name") or "")
    # a refused command has sent nothing
    return await cluster.renewing(lambda client: execute(client, path, container, command, stdin, _COMMAND_S))


#: Maximum bytes to read of a pod's log.
_MOST = 64 * 1024 * 1024


async def read_stretch(cluster: Cluster, memory: JobMemory, name: str, offset: int, limit: int) -> bytes:
    """Part of the reporting pod's log, as `Platform.read_file`; pods have a single stream for stdout and stderr."""
    pod = memory.reporter()
    if name != protocol.STDOUT_FILE or pod is None:
        raise NotFound(f"job {memory.job_name} has no {name} in the cluster")
    path = PODS.path(cluster.namespace, pod) + "/log"
    query = [("container", memory.container), ("limitBytes", str(_MOST))]
    try:
        data = await cluster.renewing(lambda client: client.read("GET", path, query=query))
    except Refusal as refusal:
        # permanent: the container has not started or is gone, the right is missing, or the node does not answer
        if refusal.status in (400, 403, 404) or "containerLogs" in refusal.message:
            raise NotFound(f"pod {pod} has no log: {refusal.message}") from None
        raise PlatformUnavailable(f"the log of pod {pod} cannot be read: {refusal}") from None
    return data[offset : offset + limit] if offset >= 0 else data[offset:][:limit]
