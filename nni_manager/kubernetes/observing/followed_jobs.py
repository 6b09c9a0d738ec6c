"""The jobs of one training service while it is connected: reports from informers, results and logs."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import AsyncExitStack, suppress

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import PlatformError, PlatformUnavailable
from nni_manager.domain.job import JobHandle
from nni_manager.kubernetes.api.client import Object, Refusal
from nni_manager.kubernetes.api.cluster import Cluster, Kind
from nni_manager.kubernetes.api.names import EVENTS, PODS, Resource
from nni_manager.kubernetes.jobs import handle_data
from nni_manager.kubernetes.jobs.cluster_objects import ClusterObjects
from nni_manager.kubernetes.jobs.job_memory import JobMemory
from nni_manager.kubernetes.observing.following import Following
from nni_manager.kubernetes.observing.reading import ResultReader, reading
from nni_manager.platform_kit.contract import Host

#: Seconds that the first list is waited for.
_LIST_S = 20.0


class FollowedJobs:
    """The followed jobs of one service, made by `follow`. Answers from memory: the last state stands until the
    cluster reports another."""

    def __init__(
        self, kind: Kind, following: Following, reading: ResultReader | None, service: ClusterObjects, *, restarts: bool
    ) -> None:
        self._kind = kind
        self._restarts = restarts
        self._following = following
        self._reading = reading
        self._service = service
        self._mending: asyncio.Task[None] | None = None

    def report(self, handle: JobHandle) -> Observation:
        told, memory = handle_data.read(handle), self.memory(handle)
        found = self._following.report(memory)
        if memory.is_slow_to_start and (self._mending is None or self._mending.done()):
            self._mending = asyncio.create_task(self._mend(), name="objects that pods mount")
        if self._reading is not None:
            found = self._reading.seen(memory, found)
        return dataclasses.replace(found, link=told.link) if told.link else found

    def memory(self, handle: JobHandle, created: Object | None = None) -> JobMemory:
        """The memory of a job, which is followed from now on. `created`: what the server has just made, if it has."""
        told = handle_data.read(handle)
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
            )
        )
        if self._reading is not None:
            self._reading.follow(memory, told.folder)
        return memory

    async def _mend(self) -> None:
        """Creates shared objects again that were removed and that pods wait for."""
        with suppress(Refusal, PlatformError):
            await self._service.mend()

    async def close(self) -> None:
        if self._mending is not None:
            self._mending.cancel()
            await asyncio.wait([self._mending])

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
) -> FollowedJobs:
    """The followed jobs, once everything was listed; followed until the stack is left. `restarts`: the operator starts
    ended processes again.

    Raises PlatformUnavailable and BadCredentials.
    """
    jobs, pods, events = (cluster.informer(one) for one in (resource, PODS, EVENTS))
    try:
        async with asyncio.timeout(_LIST_S):
            for informer in (jobs, pods):
                await informer.ready()
    except TimeoutError:
        raise PlatformUnavailable(f"the cluster did not list its objects within {_LIST_S:g} s") from None
    following = Following(jobs, pods, events, kind.read, host.wake)
    stack.callback(following.close)
    found = reading(service, cluster, host, sends_code=sends_code)
    if found is not None:
        stack.push_async_callback(found.close)
        following.on_change = found.notice
    jobs_followed = FollowedJobs(kind, following, found, service, restarts=restarts)
    stack.push_async_callback(jobs_followed.close)
    return jobs_followed
