"""The adapter of Azure Machine Learning: each attempt is one command job.

Code is an asset identified by its content. The attempt's folder is an output on the workspace's storage, mounted in the
container. Runners push reports if they reach the manager; otherwise this adapter copies their files and reads those.
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
from nni_manager.platform_kit.confirmed_loss import APART_S, ConfirmedLoss
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
from nni_manager.web_services.jobs import all_of, loop_s, name_of, names_of
from trial_runner import protocol

#: Seconds allowed for copying a job's files after its end.
_READ_PATIENCE_S = 10.0
_SLOW_POLL_S = 20.0
#: For users whose jobs cannot mount shared storage.
_OTHERWISE = "or remove sharedStorage; jobs can then store files in the workspace's own container"


class AmlPlatform(OnSharedStorage[AmlConfig]):
    """The adapter of `aml`, which polls the service for job states."""

    #: Transport used in tests; None: httpx's own.
    transport: ClassVar[httpx.AsyncBaseTransport | None] = None

    in_containers = True
    #: Any other credential would be readable by everyone with access to the workspace.
    mounts: ClassVar[frozenset[str]] = frozenset({"NFS"})
    instead_of_shared_storage: ClassVar[str] = "let jobs store files in the workspace's own container"
    capabilities = Capabilities(
        watches=False,
        reads_files=True,
        has_runner=True,
        is_read=True,
        ships_code=True,
        has_portal=True,
        slow_poll_s=_SLOW_POLL_S,
    )
    #: Seconds between two rounds that lack a job, after which it is lost.
    loss_apart_s: ClassVar[float] = APART_S

    def __init__(self, config: AmlConfig, host: Host) -> None:
        super().__init__(config, host)
        self._lease: WebLease[AmlAccount] = WebLease(
            host.connections, self.connection_key(config), f"{host.experiment_id}/{host.service}", self._account, ""
        )
        self._assets = Assets(self.config, host.code)
        self._loss = ConfirmedLoss(loop_s, apart_s=self.loss_apart_s)
        self._pull = Pull(host)
        self._blob_tokens = self._tokens()
        self._blobs: Blobs | None = None
        self._mirror: Mirror | None = None
        self._tasks: list[asyncio.Task[None]] = []
        #: Names of jobs that were forgotten after their runner's end.
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
        """Opens the workspace's storage. Raises PlatformUnavailable, BadCredentials."""
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
            raise SubmitRejected(f"Azure ML refused the job: {error}") from None

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
        raise SubmitRejected(f"the workspace has other jobs named {' and '.join(names_of(spec, '-'))}; rename those")

    async def _put(self, name: str, body: Json) -> Any:
        """The job of that name, created or found; a found one may be foreign. Repeating the call returns the same job.

        Azure ML refuses a different body under the same name.
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
        """Prefix of the names of an attempt's blobs."""
        return f"nni-experiments/{self.host.experiment_id}/{attempt_directory_of(job_name)}"

    # Observing

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        for task in self._tasks:
            if task.done():
                task.result()  # raises a bug's exception
        try:
            listed = await self._lease.call(lambda account: account.jobs(jobs.tag_of(self.host.experiment_id)))
            missing = [handle for handle in handles if name_of(handle) not in listed]
            asked = {handle: await self._ask_for(handle) for handle in self._loss.due(missing)}
        except Refused as error:
            raise PlatformUnavailable(f"Azure ML: {error}") from None
        return {handle: self._report(handle, listed.get(name_of(handle)), asked) for handle in handles}

    async def _ask_for(self, handle: JobHandle) -> Any | None:
        return await self._lease.call(lambda account: account.get(f"jobs/{name_of(handle)}"))

    def _report(self, handle: JobHandle, job: Any | None, asked: dict[JobHandle, Any | None]) -> Observation:
        self._follow(handle.job_name)
        if job is None and handle not in asked:
            return Observation(state=JobState.UNKNOWN)  # a later round queries it
        if job is None and (job := asked[handle]) is None:
            return self._missing(handle.job_name)
        self._loss.found(handle.job_name)
        return self._with_what_is_read(handle, states.job_report(job))

    def _missing(self, job_name: str) -> Observation:
        if self._loss.is_lost(job_name, has_exit=self._pull.has_ended(job_name)):
            return Observation(state=JobState.LOST, message="the job no longer exists in Azure ML")
        return Observation(state=JobState.UNKNOWN)

    def _follow(self, job_name: str) -> None:
        assert self._mirror is not None, "entered"
        folder, logs = self._folder(job_name), self.host.folder / "trials" / attempt_directory_of(job_name)
        self._mirror.follow(job_name, self._prefix(job_name), folder)
        self._pull.follow(job_name, folder, logs)

    def _with_what_is_read(self, handle: JobHandle, report: Observation) -> Observation:
        """The report to return: the end is held back until the job's files have been read."""
        name, mirror = handle.job_name, self._mirror
        assert mirror is not None, "entered"
        running = dataclasses.replace(report, state=JobState.RUNNING, native_reason="", message="", wait=None)
        if report.state in (JobState.SUCCEEDED, JobState.FAILED):
            if not self._pull.is_over(name):
                mirror.hurry(name)
            self._pull.finish(name, _READ_PATIENCE_S)
            return report if self._pull.is_over(name) else running
        is_seen = report.state is JobState.PENDING and self._pull.has_started(name)
        return running if is_seen else report

    def _folder(self, job_name: str) -> Path:
        """The local folder for copies of a job's files on the storage."""
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
        """Cancels running jobs and forgets all of them.

        They stay in the studio, and their outputs on the storage: both belong to the user.
        """
        await self._collect(handles)
        over = {name_of(one) for one in handles if (self._folder(one.job_name) / protocol.EXIT_FILE).exists()}
        self._left |= over
        await self._cancel([name_of(handle) for handle in handles if name_of(handle) not in over])
        for handle in handles:
            self._pull.forget(handle.job_name)
            self._loss.forget(handle.job_name)
            if self._mirror is not None:
                self._mirror.forget(handle.job_name)

    async def close(self) -> None:
        await self._cancel(sorted(self._left))
        self._left.clear()
        await super().close()

    async def clean(self, job_names: Sequence[str]) -> None:
        """Cancels these jobs if entered; otherwise cancels all of the experiment's jobs and removes their files."""
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
        """Cancels a job. Ignores jobs that have ended or do not exist."""
        found = await self._lease.call(lambda account: account.get(f"jobs/{name}"))
        status = str(((found or {}).get("properties") or {}).get("status") or "")
        if found is None or states.job_state(status).is_final or status == "CancelRequested":
            return
        try:
            await self._lease.call(lambda account: account.post(f"jobs/{name}/cancel"))
        except Refused as error:  # it has just ended; if not, the next round reports it
            if error.status not in (400, 404, 409):
                raise PlatformUnavailable(f"Azure ML did not cancel {name}: {error}") from None
