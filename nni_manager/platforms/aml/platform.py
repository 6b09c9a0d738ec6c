"""The adapter of Azure Machine Learning: trials run as its command jobs, one job for each attempt.

Code is an asset named by its content. The attempt's folder is an output on the workspace's storage, which the container
mounts: runners report to the manager where they reach it, else their files there are copied here and read.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import httpx

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import PlatformUnavailable, SubmitRejected
from nni_manager.domain.experiment import ExperimentSpec, Json
from nni_manager.domain.ids import attempt_directory_of
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.contract import Capabilities, Host, PreflightFinding
from nni_manager.platform_kit.tasks import ended
from nni_manager.platforms.aml import job as jobs
from nni_manager.platforms.aml import preflight, states
from nni_manager.platforms.aml.account import AmlAccount, Tokens
from nni_manager.platforms.aml.assets import Assets, Blobs
from nni_manager.platforms.aml.config import AmlConfig
from nni_manager.platforms.aml.mirror import Mirror
from nni_manager.shared_storage import mount_by_job
from nni_manager.shared_storage.job_folders import read_stretch
from nni_manager.shared_storage.pull import Pull
from nni_manager.shared_storage.shared_folder import OnSharedStorage
from nni_manager.web_services.account import Refused, WebLease
from nni_manager.web_services.jobs import UnlistedJobs, all_of, name_of, names_of
from trial_runner import protocol

#: Seconds that copying a job's files may take after its end.
_READ_PATIENCE_S = 10.0
_SLOW_POLL_S = 20.0
#: For users with jobs that cannot mount shared storage.
_OTHERWISE = "or remove sharedStorage, and let jobs keep what they leave in the workspace's own container"


class AmlPlatform(OnSharedStorage[AmlConfig]):
    """The adapter of `aml`: the service is asked for the states of jobs again and again."""

    #: The transport of tests; None: httpx's own.
    transport: ClassVar[httpx.AsyncBaseTransport | None] = None

    in_containers = True
    #: The key of another kind would lie where all of the workspace read.
    mounts: ClassVar[frozenset[str]] = frozenset({"NFS"})
    instead_of_shared_storage: ClassVar[str] = "let jobs keep what they leave in the workspace's own container"
    capabilities = Capabilities(
        watches=False,
        reads_files=True,
        has_runner=True,
        is_read=True,
        ships_code=True,
        has_portal=True,
        slow_poll_s=_SLOW_POLL_S,
    )

    def __init__(self, config: AmlConfig, host: Host) -> None:
        super().__init__(config, host)
        self._lease: WebLease[AmlAccount] = WebLease(
            host.connections, self.connection_key(config), f"{host.experiment_id}/{host.service}", self._account, ""
        )
        self._assets = Assets(self.config, host.code)
        self._unlisted = UnlistedJobs()
        self._pull = Pull(host)
        self._blob_tokens = self._tokens()
        self._blobs: Blobs | None = None
        self._mirror: Mirror | None = None
        self._tasks: list[asyncio.Task[None]] = []
        #: Names of jobs that were forgotten after the end of their runner.
        self._left: set[str] = set()

    def _tokens(self) -> Tokens:
        return Tokens(self.config.authority or "")

    def _account(self) -> AmlAccount:
        key = self.connection_key(self.config)
        config = self.config
        return AmlAccount(
            key, endpoint=config.address, resource=config.resource, tokens=self._tokens(), transport=self.transport
        )

    @classmethod
    def connection_key(cls, config: AmlConfig) -> str:
        return f"aml:{config.address}{config.resource}"

    @classmethod
    def check(cls, spec: ExperimentSpec, config: AmlConfig) -> None:
        mount_by_job.check(spec.shared_storage, "aml")

    async def preflight(self) -> Sequence[PreflightFinding]:
        storage = () if self._shared is None else (await self._shared.preflight(),)
        async with self._lease.entered():
            found = await preflight.look(self.config, lambda path: self._lease.call(lambda account: account.get(path)))
        return (*storage, *found)

    async def __aenter__(self) -> Self:
        await self._lease.enter()
        try:
            await self._connect()
        except BaseException:
            await self._leave()
            raise
        assert self._mirror is not None
        self._tasks = [
            asyncio.create_task(self._pull.run(), name=f"pull {self.host.experiment_id}"),
            asyncio.create_task(self._mirror.run(), name=f"mirror {self.host.experiment_id}"),
        ]
        return self

    async def _connect(self) -> None:
        """Opens the workspace's storage, at the address that the workspace gives. Raises PlatformUnavailable,
        BadCredentials."""
        store = await self._lease.call(lambda account: account.get("datastores/workspaceblobstore"))
        told = (store or {}).get("properties") or {}
        if not told.get("containerName"):
            raise PlatformUnavailable("the workspace has no datastore workspaceblobstore with a blob container")
        address = f"{told.get('protocol') or 'https'}://{told.get('accountName')}.blob.{told.get('endpoint')}"
        place = f"{self.config.storage_endpoint or address}/{told['containerName']}"
        self._blobs = Blobs(place, self._blob_tokens, self.transport)
        self._mirror = Mirror(self._blobs, self.host.max_log_bytes)

    async def __aexit__(self, *_: object) -> None:
        tasks, self._tasks = self._tasks, []
        await ended(*tasks)
        await self._leave()

    async def _leave(self) -> None:
        if self._blobs is not None:
            await self._blobs.close()
        await self._blob_tokens.close()
        await self._lease.leave()

    # Submitting

    async def submit(self, spec: JobSpec) -> JobHandle:
        try:
            return await self._submit(spec)
        except Refused as error:
            raise SubmitRejected(f"Azure ML refuses the job: {error}") from None

    async def _submit(self, spec: JobSpec) -> JobHandle:
        storage = self._storage
        code = await self._lease.call(lambda account: self._assets.put(account, storage))
        folder = self._prefix(spec.name)
        if self._shared is not None:
            own = await mount_by_job.prepared(self._shared, spec, _OTHERWISE)
            spec = dataclasses.replace(spec, command=f"{own.mount}{own.prelude}{spec.command}")
        await storage.put(f"{folder}/{protocol.PARAMETER_FILE}", spec.parameter_record.encode())
        await storage.put(f"{folder}/{jobs.VARIABLES_FILE}", jobs.variables(spec).encode())
        body = jobs.creation(self.config, spec, resource=self.config.resource, code=code, folder=folder)
        names = names_of(spec, "-")
        for name in names:
            taken = await self._put(name, body)
            if jobs.is_ours(taken, spec):
                return JobHandle(platform="aml", version=1, job_name=spec.name, data=name, link=states.link(taken))
        raise SubmitRejected(f"the workspace has other jobs called {' and '.join(names_of(spec, '-'))}; rename those")

    async def _put(self, name: str, body: Json) -> Any:
        """The job of that name, created or found; a found one may be foreign. The same body twice is the same job.

        Azure ML refuses another body under the same name.
        """
        try:
            return await self._lease.call(lambda account: account.put(f"jobs/{name}", body))
        except Refused:
            there = await self._lease.call(lambda account: account.get(f"jobs/{name}"))
            if there is None:
                raise
            return there

    @property
    def _storage(self) -> Blobs:
        assert self._blobs is not None, "entered"
        return self._blobs

    def _prefix(self, job_name: str) -> str:
        """The prefix of the names of an attempt's blobs."""
        return f"nni-experiments/{self.host.experiment_id}/{attempt_directory_of(job_name)}"

    # Looking

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        for task in self._tasks:
            if task.done():
                task.result()  # a fault of ours, which must not go unseen
        try:
            listed = await self._lease.call(lambda account: account.jobs(jobs.tag_of(self.host.experiment_id)))
            missing = [handle for handle in handles if name_of(handle) not in listed]
            asked = {handle: await self._ask_for(handle) for handle in self._unlisted.due(missing)}
        except Refused as error:
            raise PlatformUnavailable(f"Azure ML: {error}") from None
        return {handle: self._report(handle, listed.get(name_of(handle)), asked) for handle in handles}

    async def _ask_for(self, handle: JobHandle) -> Any | None:
        return await self._lease.call(lambda account: account.get(f"jobs/{name_of(handle)}"))

    def _report(self, handle: JobHandle, job: Any | None, asked: dict[JobHandle, Any | None]) -> Observation:
        if job is None and handle not in asked:
            return Observation(state=JobState.UNKNOWN)  # one of the next rounds asks about it
        if job is None and (job := asked[handle]) is None:
            return Observation(state=JobState.LOST, message="Azure ML does not know the job any more")
        return self._with_what_is_read(handle, states.job_report(job))

    def _with_what_is_read(self, handle: JobHandle, report: Observation) -> Observation:
        """The report to give: an end is held back until the job's files are read."""
        name, mirror = handle.job_name, self._mirror
        assert mirror is not None, "entered"
        mirror.follow(name, self._prefix(name), self._folder(name))
        self._pull.follow(name, self._folder(name), self.host.folder / "trials" / attempt_directory_of(name))
        running = dataclasses.replace(report, state=JobState.RUNNING, native_reason="", message="", wait=None)
        if report.state in (JobState.SUCCEEDED, JobState.FAILED):
            if not self._pull.is_over(name):
                mirror.hurry(name)
            self._pull.finish(name, _READ_PATIENCE_S)
            return report if self._pull.is_over(name) else running
        is_seen = report.state is JobState.PENDING and self._pull.has_started(name)
        return running if is_seen else report

    def _folder(self, job_name: str) -> Path:
        """The folder of this machine to which a job's files on the storage are copied."""
        return self.host.folder / self.host.service / attempt_directory_of(job_name)

    async def _read(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        mirror = self._mirror
        assert mirror is not None, "entered"
        mirror.follow(handle.job_name, self._prefix(handle.job_name), self._folder(handle.job_name))
        await mirror.sync(handle.job_name)
        return await asyncio.to_thread(read_stretch, self._folder(handle.job_name), name, offset, limit)

    # Ending

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        await self._cancel([name_of(handle) for handle in handles])

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        """Cancels jobs that still run and forgets all.

        They stay in the studio, and outputs on the storage: they are their user's.
        """
        await self._collect(handles)
        over = {name_of(one) for one in handles if (self._folder(one.job_name) / protocol.EXIT_FILE).exists()}
        self._left |= over
        await self._cancel([name_of(handle) for handle in handles if name_of(handle) not in over])
        for handle in handles:
            self._pull.forget(handle.job_name)
            self._unlisted.forget(handle.job_name)
            if self._mirror is not None:
                self._mirror.forget(handle.job_name)

    async def close(self) -> None:
        await self._cancel(sorted(self._left))
        self._left.clear()
        await super().close()

    async def clean(self, job_names: Sequence[str]) -> None:
        """Cancels these jobs, when it was entered; else all of the experiment's, whose files are removed, too."""
        async with self._lease.entered():
            listed = await self._lease.call(lambda account: account.jobs(jobs.tag_of(self.host.experiment_id)))
            if self._tasks:
                return await self._cancel(sorted(name for name in listed if jobs.name_of(listed[name]) in job_names))
            await self._cancel(sorted(listed))
            await self._remove_files()

    async def _remove_files(self) -> None:
        await self._connect()
        try:
            for name in await self._storage.sizes(f"nni-experiments/{self.host.experiment_id}/"):
                await self._storage.delete(name)
        finally:
            await self._storage.close()
            await self._blob_tokens.close()

    async def _cancel(self, names: Sequence[str]) -> None:
        await all_of(map(self._cancel_one, names))

    async def _cancel_one(self, name: str) -> None:
        """Cancels a job. Quiet for an ended or unknown one."""
        found = await self._lease.call(lambda account: account.get(f"jobs/{name}"))
        status = str(((found or {}).get("properties") or {}).get("status") or "")
        if found is None or states.job_state(status).is_final or status == "CancelRequested":
            return
        try:
            await self._lease.call(lambda account: account.post(f"jobs/{name}/cancel"))
        except Refused as error:  # it ended in that moment, or the next round sees that it did not
            if error.status not in (400, 404, 409):
                raise PlatformUnavailable(f"Azure ML does not cancel {name}: {error}") from None
