"""The adapter of any operator's kind of job: what differs is the kind's name, its manifest and its table of states.

One connection and one informer a kind serve the whole daemon. `observe` answers from memory; what was told last stands
until the cluster has said something else.
"""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import ClassVar, Self

from nni_manager.domain.errors import BadCredentials, NotFound, PlatformUnavailable, SubmitRejected
from nni_manager.domain.experiment import Json
from nni_manager.domain.job import JobHandle, JobReport, JobSpec
from nni_manager.platform_kit import attempt_file
from nni_manager.platform_kit.connections import Lease
from nni_manager.platform_kit.contract import Capabilities, Host, NoRoom, Platform, PreflightFinding, Severity
from nni_manager.platform_kit.kubernetes import logs, names, refusals, storage, submission
from nni_manager.platform_kit.kubernetes.access import Access
from nni_manager.platform_kit.kubernetes.client import Object, Refusal
from nni_manager.platform_kit.kubernetes.cluster import Cluster
from nni_manager.platform_kit.kubernetes.following import Following
from nni_manager.platform_kit.kubernetes.job_memory import JobMemory
from nni_manager.platform_kit.kubernetes.kind import Kind
from nni_manager.platform_kit.kubernetes.preflight import Preflight
from nni_manager.platform_kit.kubernetes.reading import Reading, reading
from nni_manager.platform_kit.kubernetes.resource import EVENTS, PODS, SECRETS, Resource
from nni_manager.platform_kit.kubernetes.service import Service
from trial_runner import protocol

log = logging.getLogger(__name__)

#: Seconds that entering waits for the first list.
_ENTER_S = 20.0
#: Seconds after which a quota that was used up is tried again.
_ROOM_AGAIN_S = 3.0


class KubernetesPlatform(Platform):
    """Inherit; the abstract methods are pure."""

    name: ClassVar[str]
    instead_of_shared_storage: ClassVar[str] = (
        "let pods mount it: storage: {storageType: nfs, server: …, path: …, localMountPoint: …} of the section"
    )

    def __init__(self, settings: Json, host: Host) -> None:
        super().__init__(settings, host)
        self.access = Access.of(settings)
        self._stack = AsyncExitStack()
        self._lease: Lease[Cluster] | None = None
        self._following: Following | None = None
        self._service: Service | None = None
        self._resource: Resource | None = None
        self._reading: Reading | None = None

    # What a kind of job says of itself

    @abc.abstractmethod
    def job_kind(self) -> Kind:
        """Of these settings."""

    @abc.abstractmethod
    def object_name(self, spec: JobSpec) -> str:
        """Legal, and no other job's."""

    @abc.abstractmethod
    def manifest(self, spec: JobSpec, name: str, labels: dict[str, str], service: Service) -> Object:
        """The object, without `apiVersion` and `kind`; its pods carry the labels."""

    # What it can do

    @classmethod
    def capabilities_for(cls, settings: Json) -> Capabilities:
        channel = storage.channel(settings)
        return Capabilities(
            watches=True, reads_files=True, has_portal=True,
            has_runner=channel in (protocol.PUSH, protocol.PUSH_OR_EXEC), is_read=channel != protocol.PUSH,
            ships_code=cls.sends_code(settings), platform_decides=cls.restarts(settings), slow_poll_s=60.0,
        )  # fmt: skip

    @classmethod
    def restarts(cls, settings: Json) -> bool:
        """The operator starts ended processes again."""
        return False

    @classmethod
    def sends_code(cls, settings: Json) -> bool:
        """The code directory is sent; else it is in the image."""
        return True

    @classmethod
    def connection_key(cls, settings: Json) -> str:
        return Access.of(settings).key

    async def preflight(self) -> Sequence[PreflightFinding]:
        try:
            kind = self.job_kind()
        except SubmitRejected as error:
            return [PreflightFinding(severity=Severity.WRONG, subject="config", sentence=str(error))]
        return await Preflight(self.settings, self.access, kind, self.look_further).findings()

    async def look_further(self, cluster: Cluster) -> AsyncIterator[PreflightFinding]:
        """What else may be wrong, of a section of this platform alone."""
        nothing: Sequence[PreflightFinding] = ()
        for finding in nothing:
            yield finding

    # Entering and leaving

    async def __aenter__(self) -> Self:
        try:
            await self._enter()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def _enter(self) -> None:
        cluster = await self._connect()
        self._resource = await self._find_resource(cluster)
        jobs, pods, events = (cluster.informer(resource) for resource in (self._resource, PODS, EVENTS))
        try:
            async with asyncio.timeout(_ENTER_S):
                for informer in (jobs, pods):
                    await informer.ready()
        except TimeoutError:
            raise PlatformUnavailable(f"the cluster did not list its objects within {_ENTER_S:g} s") from None
        self._following = Following(jobs, pods, events, self.job_kind().read, self.host.wake)
        self._stack.callback(self._following.close)
        self._service = Service(cluster, self.settings, self.host, self.name)
        self._begin_reading(self._service, cluster, self._following)
        cluster.on_health.append(self._on_health)
        self._stack.callback(cluster.on_health.remove, self._on_health)

    def _begin_reading(self, service: Service, cluster: Cluster, following: Following) -> None:
        """Where runners do not post their results."""
        sends_code = self.sends_code(self.settings)
        self._reading = reading(service, cluster, self.host, sends_code=sends_code)
        if self._reading is not None:
            self._stack.push_async_callback(self._reading.close)
            following.on_change = self._reading.notice

    async def _connect(self) -> Cluster:
        key, owner = self.access.key, f"{self.host.experiment_id}/{self.host.service}"
        self._lease = await self._stack.enter_async_context(
            self.host.connections.lease(key, owner, lambda: Cluster(key), self.access.to_text())
        )
        return await self._lease.use()

    async def _find_resource(self, cluster: Cluster) -> Resource:
        """Of the version that the config asks for, if the cluster has it, else of one that it has."""
        kind = self.job_kind()
        try:
            found = await kind.find(cluster)
        except Refusal as refusal:
            raise refusals.error(refusal, f"look for {kind.plural}", cluster.namespace) from None
        if found is None:
            raise PlatformUnavailable(kind.missing(), refused=True)
        return found

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        self._stack = AsyncExitStack()
        self._lease, self._following, self._service, self._reading = None, None, None, None

    def _on_health(self) -> None:
        self.host.wake("")

    async def _cluster(self) -> Cluster:
        assert self._lease is not None, "entered"
        return await self._lease.use()

    @property
    def _entered(self) -> tuple[Following, Service, Resource]:
        assert self._following is not None and self._service is not None and self._resource is not None, "entered"
        return self._following, self._service, self._resource

    # Submitting

    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        cluster = await self._cluster()
        try:
            created = await self._create(cluster, spec)
        except Refusal as refusal:
            if (why := refusals.quota(refusal)) is not None:
                asyncio.get_running_loop().call_later(_ROOM_AGAIN_S, self.host.wake, "")  # nobody tells of room
                return NoRoom(why=why)
            error = refusals.error(refusal, f"create {self._entered[2].plural}", cluster.namespace)
            await self._on_error(error)
            raise error from None
        meta = created["metadata"]
        told = {"name": meta["name"], "uid": meta.get("uid", ""), "folder": spec.attempt_directory}
        data = json.dumps(told | {"link": storage.address(self.settings, spec)})
        handle = JobHandle(platform=self.name, version=1, job_name=spec.name, data=data)
        self._memory(handle, created)
        return handle

    async def _on_error(self, error: Exception) -> None:
        """Another lease's credential may do where this one's does not."""
        if isinstance(error, BadCredentials) and self._lease is not None:
            await self._lease.refused(error)

    async def _create(self, cluster: Cluster, spec: JobSpec) -> Object:
        """Raises Refusal, too."""
        _, service, resource = self._entered
        name = self.object_name(spec)
        labels = names.job_labels(spec, self.host.service, name)
        if spec.is_repeat and (
            found := await submission.find_own(cluster, resource, name, labels, spec)
        ):  # fmt: skip
            await self.on_created(cluster, found, spec, service)
            return found
        await service.prepare()
        manifest = self.manifest(spec, name, labels, service)
        whole = submission.body(resource, manifest, spec, name, cluster.namespace, labels)
        created, _ = await submission.create(cluster, resource, whole, spec, service)
        await self.on_created(cluster, created, spec, service)
        return created

    async def on_created(self, cluster: Cluster, created: Object, spec: JobSpec, service: Service) -> None:
        """Makes what belongs to the object; repeatable."""
        await service.own_secret(created)

    # Observing

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, JobReport]:
        following, _, resource = self._entered
        cluster = await self._cluster()
        for informer in (cluster.informer(resource), cluster.informer(PODS)):
            if informer.trouble is not None:
                await self._on_error(informer.trouble)
                raise informer.trouble
        return {handle: self._report(following, handle) for handle in handles}

    def _report(self, following: Following, handle: JobHandle) -> JobReport:
        memory = self._memory(handle)
        found = following.report(memory)
        told = self._reading.seen(memory, found) if self._reading is not None else found
        link = json.loads(handle.data).get("link", "")
        return dataclasses.replace(told, link=link) if link else told

    def _memory(self, handle: JobHandle, created: Object | None = None) -> JobMemory:
        following = self._entered[0]
        told = json.loads(handle.data)
        known = following.find(told["name"])
        if known is not None and known.uid == told["uid"]:
            return known
        memory = JobMemory(
            job_name=handle.job_name, name=told["name"], uid=told["uid"], container=self.job_kind().container,
            object=created, made_s=asyncio.get_running_loop().time() if created is not None else float("-inf"),
        )  # fmt: skip
        memory = following.follow(memory)
        if self._reading is not None:
            self._reading.follow(memory, told["folder"])
        return memory

    # Ending

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        cluster, (_, _, resource) = await self._cluster(), self._entered
        for handle in handles:
            memory = self._memory(handle)
            if memory.final is None and memory.object is not None and memory.removed_s is None:
                await self._guarded(cluster, self.job_kind().end(cluster, resource, memory.name, memory.uid), "delete")
                memory.is_cancelled = True
        for handle in handles:
            self.host.wake(handle.job_name)

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        cluster, (following, service, resource) = await self._cluster(), self._entered
        for handle in handles:
            memory = self._memory(handle)
            await self._guarded(cluster, cluster.delete(resource, memory.name, uid=memory.uid), "delete")
            await self._guarded(cluster, service.drop_job(memory.name), "delete")
            following.forget(memory.name)
            if self._reading is not None:
                self._reading.forget(memory)

    async def _guarded(self, cluster: Cluster, call: object, verb: str) -> None:
        try:
            await call  # type: ignore[misc]
        except Refusal as refusal:
            error = refusals.error(refusal, f"{verb} {self._entered[2].plural}", cluster.namespace)
            raise PlatformUnavailable(str(error)) from None

    async def close(self) -> None:
        await self._entered[1].close()

    async def clean(self, job_names: Sequence[str]) -> None:
        """Entered: these jobs; else all that carries the experiment's labels."""
        if self._service is not None:
            return await self._clean(await self._cluster(), self._entered[2], frozenset(job_names))
        try:
            cluster = await self._connect()
            resource = await self.job_kind().find(cluster)
            self._service = Service(cluster, self.settings, self.host, self.name)
            if resource is not None:
                await self._clean(cluster, resource, None)
            await self._service.close()
        except Refusal as refusal:
            raise PlatformUnavailable(f"what is left of it cannot be removed: {refusal}") from None
        finally:
            await self.__aexit__(None, None, None)

    async def _clean(self, cluster: Cluster, resource: Resource, job_names: frozenset[str] | None) -> None:
        """`job_names` None: all."""
        labels = names.service_labels(self.host.experiment_id, self.host.service)
        for found in await cluster.list(resource, names.selector(labels)):
            meta = found["metadata"]
            name = (meta.get("annotations") or {}).get(names.DOCUMENTED_NAME)
            if job_names is None or name in job_names:
                await cluster.delete(resource, meta["name"], uid=meta.get("uid", ""))
                await cluster.delete(SECRETS, Service.secret_name(meta["name"]))

    # Logs

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        folder = self._entered[1].folder(str(json.loads(handle.data).get("folder", "")))
        if folder is not None:
            return await asyncio.to_thread(attempt_file.read_stretch, folder.here, name, offset, limit)
        memory = self._memory(handle)
        if name != protocol.STDOUT_FILE or not memory.pods:
            raise NotFound(f"job {handle.job_name} has no {name} in the cluster")
        data = await logs.read(await self._cluster(), memory)
        return data[offset : offset + limit] if offset >= 0 else data[offset:][:limit]
