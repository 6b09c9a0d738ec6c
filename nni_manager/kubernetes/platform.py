"""The base of adapters for an operator's kind of job; they add the kind, its manifest and its table of states.

One connection and one informer per kind serve the whole daemon. `observe` answers from memory: the last state counts
until the cluster reports another.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Awaitable, Collection, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import ClassVar, Self, TypeVar

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import BadCredentials, PlatformError, PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.kubernetes.api import names
from nni_manager.kubernetes.api.access import Access
from nni_manager.kubernetes.api.client import Object, Refusal
from nni_manager.kubernetes.api.cluster import Cluster, Kind
from nni_manager.kubernetes.api.names import PODS, Resource
from nni_manager.kubernetes.fields import KubernetesSection
from nni_manager.kubernetes.jobs import draft, kueue, removal, storage, submission
from nni_manager.kubernetes.jobs.cluster_objects import ClusterObjects
from nni_manager.kubernetes.observing import followed_jobs
from nni_manager.kubernetes.observing.followed_jobs import FollowedJobs
from nni_manager.kubernetes.preflight import Preflight
from nni_manager.platform_kit.connections import Lease
from nni_manager.platform_kit.contract import (
    Capabilities,
    Host,
    LeftObject,
    NoRoom,
    Platform,
    PreflightFinding,
    Severity,
)
from nni_manager.shared_storage import job_folders
from trial_runner import protocol

#: Seconds before a used-up quota is tried again.
_ROOM_AGAIN_S = 3.0
#: Seconds for which the node of a job may not answer, after the cluster has waited for it (five minutes by default).
_NODE_GRACE_S = 600.0
#: Statuses of a refused object that would not change within moments: a quota, a right, a webhook.
_FOR_GOOD = (400, 403, 413, 422)


ClusterConfigT = TypeVar("ClusterConfigT", bound=KubernetesSection)


class KubernetesPlatform(Platform[ClusterConfigT]):
    """The base of adapters of one kind of job in a cluster; its abstract methods are pure."""

    instead_of_shared_storage: ClassVar[str] = (
        "let pods mount it: storage: {storageType: nfs, server: …, path: …, localMountPoint: …} of the section"
    )
    #: Only the manifests of later jobs depend on these.
    changeable: ClassVar[frozenset[str]] = frozenset(
        "podTemplate gpuResourceName priorityClassName queueName priorityClass labels annotations".split()
    )

    def __init__(self, config: ClusterConfigT, host: Host) -> None:
        super().__init__(config, host)
        self.access = Access.of(config)
        self._stack = AsyncExitStack()
        self._lease: Lease[Cluster] | None = None
        self._jobs: FollowedJobs | None = None
        self._service: ClusterObjects | None = None
        self._resource: Resource | None = None

    # For adapters of a kind of job

    @abc.abstractmethod
    def job_kind(self) -> Kind:
        """The kind of job that the config requests."""

    def object_name(self, spec: JobSpec) -> str:
        """The name of the job's object: valid and unique."""
        return names.dashed(spec)

    @abc.abstractmethod
    def manifest(self, spec: JobSpec, name: str, labels: dict[str, str], service: ClusterObjects) -> Object:
        """The job's object, without `apiVersion` and `kind`; its pods carry the labels."""

    def as_made(self, pod: Object) -> Object:
        """A pod of a template, as the operator creates it."""
        return pod

    async def on_connected(self, cluster: Cluster, resource: Resource) -> None:
        """Reads from the cluster what manifests depend on. Raises Refusal and PlatformUnavailable."""

    def _labelled(self, spec: JobSpec, name: str, labels: dict[str, str], service: ClusterObjects) -> Object:
        """The manifest with the section's labels and annotations on the job's object."""
        found = self.manifest(spec, name, labels, service)
        own = {"labels": self.config.job_labels(), "annotations": dict(self.config.annotations or {})}
        return {**found, "metadata": {**found.get("metadata", {}), **own}}

    # Capabilities

    @classmethod
    def capabilities_for(cls, config: ClusterConfigT) -> Capabilities:
        channel = storage.channel(config)
        return Capabilities(
            watches=True,
            reads_files=True,
            has_portal=True,
            has_runner=channel in (protocol.PUSH, protocol.PUSH_OR_EXEC),
            is_read=channel != protocol.PUSH,
            ships_code=cls.sends_code(config),
            platform_decides=cls.restarts(config),
            clean_closes=True,
            unreachable_grace_s=_NODE_GRACE_S,
            slow_poll_s=60.0,
        )

    @classmethod
    def restarts(cls, config: ClusterConfigT) -> bool:
        """Whether the operator restarts ended processes."""
        return False

    @classmethod
    def sends_code(cls, config: ClusterConfigT) -> bool:
        """Whether the code directory is sent; otherwise it is in the image."""
        return True

    @classmethod
    def connection_key(cls, config: ClusterConfigT) -> str:
        return Access.of(config).key

    async def preflight(self) -> Sequence[PreflightFinding]:
        try:
            kind = self.job_kind()
        except SubmitRejected as error:
            return [PreflightFinding(Severity.WRONG, "config", str(error))]
        return await Preflight(self.config, self.access, kind, self._look_further).findings()

    async def _look_further(self, cluster: Cluster, resource: Resource) -> list[PreflightFinding]:
        await self.on_connected(cluster, resource)
        further = await self.look_further(cluster)
        service = ClusterObjects(cluster, self.config, self.host)
        service.pretend()

        def manifest(spec: JobSpec, name: str, labels: dict[str, str]) -> Object:
            return self._labelled(spec, name, labels, service)

        name = self.object_name(draft.spec())
        service_name, fields = self.host.service, self.pod_fields()
        drafted = await draft.findings(cluster, resource, name, service_name, manifest, self.as_made, fields=fields)
        return [*further, *drafted]

    def pod_fields(self) -> str:
        """The fields of the section that hold parts of pods, for messages."""
        return "podTemplate"

    async def look_further(self, cluster: Cluster) -> list[PreflightFinding]:
        """Further findings, about fields that only this platform's section has."""
        return []

    # Entering and leaving

    async def __aenter__(self) -> Self:
        try:
            await self._enter()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _enter(self) -> None:
        cluster = await self._connect()
        self._resource = await self._find_resource(cluster)
        self._service = ClusterObjects(cluster, self.config, self.host)
        self._jobs = await followed_jobs.follow(
            cluster,
            self._resource,
            self.job_kind(),
            self._service,
            self.host,
            self._stack,
            sends_code=self.sends_code(self.config),
            restarts=self.restarts(self.config),
            workloads=await self._find_workloads(cluster),
        )
        wake = partial(self.host.wake, "")
        cluster.on_health.append(wake)
        self._stack.callback(cluster.on_health.remove, wake)

    async def _connect(self) -> Cluster:
        key, owner = self.access.key, f"{self.host.experiment_id}/{self.host.service}"
        self._lease = await self._stack.enter_async_context(
            self.host.connections.lease(key, owner, lambda: Cluster(key), self.access.to_text())
        )
        return await self._lease.use()

    async def _find_resource(self, cluster: Cluster) -> Resource:
        """The kind in the config's version if the cluster serves it, else in a version that it serves."""
        kind = self.job_kind()
        try:
            found = await kind.find(cluster)
            if found is None:
                raise PlatformUnavailable(kind.missing(), refused=True)
            await self.on_connected(cluster, found)
        except Refusal as refusal:
            raise submission.error(refusal, f"look for {kind.plural}", cluster.namespace) from None
        return found

    async def _find_workloads(self, cluster: Cluster) -> Resource | None:
        """Kueue's kind for the jobs; None: they have no queue, or the cluster has no Kueue."""
        try:
            return await kueue.find_workloads(cluster) if self.config.queue_name else None
        except Refusal as refusal:
            raise PlatformUnavailable(f"look for Kueue: {refusal}", refused=True) from None

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self._stack = AsyncExitStack()
        self._lease, self._jobs, self._service = None, None, None

    async def _cluster(self) -> Cluster:
        assert self._lease is not None, "entered"
        return await self._lease.use()

    @property
    def _entered(self) -> tuple[FollowedJobs, ClusterObjects, Resource]:
        assert self._jobs is not None and self._service is not None and self._resource is not None, "entered"
        return self._jobs, self._service, self._resource

    # Submitting

    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        cluster = await self._cluster()
        try:
            async with cluster.submitting:
                created = await self._create(cluster, spec)
        except Refusal as refusal:
            if (why := submission.quota(refusal)) is not None:
                asyncio.get_running_loop().call_later(_ROOM_AGAIN_S, self.host.wake, "")  # no event reports new room
                return NoRoom(why=why)
            error = submission.error(refusal, f"create {self._entered[2].plural}", cluster.namespace)
            await self._on_error(error)
            raise error from None
        handle = submission.handle(self.config.platform, spec, created, storage.address(self.config, spec))
        self._entered[0].memory(handle, created)
        return handle

    async def _on_error(self, error: Exception) -> None:
        """Continues with another lease's credential if this one's is refused. Raises BadCredentials without one."""
        if isinstance(error, BadCredentials) and self._lease is not None:
            await self._lease.refused(error)

    async def _create(self, cluster: Cluster, spec: JobSpec) -> Object:
        """The job's object, created now or by an earlier call. Also raises Refusal."""
        _, service, resource = self._entered
        name = self.object_name(spec)
        labels = names.job_labels(spec, self.host.service, name, self.host.connections.identity)
        if spec.is_repeat and (found := await submission.find_own(cluster, resource, name, labels, spec)):
            return await self._completed(cluster, found, spec, is_new=False)
        await service.prepare()
        manifest = self._labelled(spec, name, labels, service)
        whole = submission.body(resource, manifest, spec, name, cluster.namespace, labels)
        created, is_new = await submission.create(cluster, resource, whole, spec, service)
        return await self._completed(cluster, created, spec, is_new=is_new)

    async def _completed(self, cluster: Cluster, job: Object, spec: JobSpec, *, is_new: bool) -> Object:
        """The job's object and its dependents.

        Raises Refusal if the server permanently refuses dependents of a new job, which is then removed; and
        PlatformUnavailable: the job exists anyway.
        """
        _, service, resource = self._entered
        kind, meta = job.get("kind"), job["metadata"]
        try:
            try:
                await self.on_created(cluster, job, spec, service)
            except Refusal as refusal:
                if not is_new or refusal.status not in _FOR_GOOD:
                    raise
                await cluster.delete(resource, meta["name"], uid=meta["uid"])
                refused = refusal
            else:
                return job
        except (Refusal, PlatformError) as error:
            raise PlatformUnavailable(f"{kind} {meta['name']} was created, but not its Secret: {error}") from None
        raise refused

    async def on_created(self, cluster: Cluster, created: Object, spec: JobSpec, service: ClusterObjects) -> None:
        """Creates the dependents of the job's object; repeatable."""
        await service.put_secret(spec, created)

    # Observing

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        jobs, _, resource = self._entered
        cluster = await self._cluster()
        for trouble in (cluster.refusal, cluster.informer(resource).trouble, cluster.informer(PODS).trouble):
            if trouble is not None:
                await self._on_error(trouble)
                raise trouble
        return {handle: jobs.report(handle) for handle in handles}

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        jobs, service, _ = self._entered
        folder = service.folder(submission.data_of(handle).folder)
        if folder is not None:
            return await asyncio.to_thread(job_folders.read_stretch, folder.here, name, offset, limit)
        return await followed_jobs.read_stretch(await self._cluster(), jobs.memory(handle), name, offset, limit)

    async def list_files(self, handle: JobHandle) -> Sequence[str]:
        _, service, _ = self._entered
        folder = service.folder(submission.data_of(handle).folder)
        if folder is None:  # a pod's files cannot be listed from outside
            return await super().list_files(handle)
        return await asyncio.to_thread(job_folders.files, folder.here)

    # Ending

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        cluster, (jobs, _, resource) = await self._cluster(), self._entered
        memories = [jobs.memory(handle) for handle in handles]
        await self._guarded(cluster, removal.end(cluster, self.job_kind(), resource, memories))
        for handle in handles:
            self.host.wake(handle.job_name)

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        cluster, (jobs, _, resource) = await self._cluster(), self._entered
        memories = [jobs.memory(handle) for handle in handles]
        await self._guarded(cluster, removal.remove(cluster, resource, memories))
        for memory in memories:
            jobs.forget(memory)

    async def _guarded(self, cluster: Cluster, removing: Awaitable[None]) -> None:
        try:
            await removing
        except Refusal as refusal:
            error = submission.error(refusal, f"delete {self._entered[2].plural}", cluster.namespace)
            raise PlatformUnavailable(str(error)) from None

    async def close(self) -> None:
        await self._entered[1].close()

    async def clean(self, job_names: Sequence[str]) -> None:
        """Removes these jobs if entered; otherwise everything with the experiment's labels."""
        labels = names.service_labels(self.host.experiment_id, self.host.service)
        if self._jobs is not None:
            return await removal.clean(await self._cluster(), self._entered[2], labels, frozenset(job_names))
        try:
            cluster = await self._connect()
            resource = await self.job_kind().find(cluster)
            if resource is not None:
                await removal.clean(cluster, resource, labels, None)
            await ClusterObjects(cluster, self.config, self.host).close()
        except Refusal as refusal:
            raise PlatformUnavailable(f"its leftovers cannot be removed: {refusal}") from None
        finally:
            await self.__aexit__()

    async def find_left(self, at_work: Collection[str], remove: Collection[str] | None) -> Sequence[LeftObject]:
        try:
            cluster = await self._connect()
            found = await removal.find(cluster, await self.job_kind().find(cluster), at_work)
            if remove is not None:
                found = [one for one in found if one.told.experiment_id in remove and not one.told.stays]
                for one in found:  # a newer object of the same name stays
                    await cluster.delete(one.resource, one.name, uid=one.uid)
        except Refusal as refusal:
            raise PlatformUnavailable(f"leftovers in the namespace: {refusal}") from None
        finally:
            await self.__aexit__()
        return [one.told for one in found]
