"""The adapter of Alibaba's PAI-DLC. A NAS that manager and jobs mount carries files in both directions.

One list returns the states of all jobs. Results are pushed by the runners, or read from the NAS if runners do not
reach the manager.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import Clock, now_ms
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.platform_kit.confirmed_loss import APART_S, ConfirmedLoss
from nni_manager.platform_kit.contract import Capabilities, Host, NoRoom, Platform, PreflightFinding, Room
from nni_manager.platforms.dlc import job, preflight, states
from nni_manager.platforms.dlc.account import DlcAccount, DlcClient, DlcRefused, Item
from nni_manager.platforms.dlc.config import DlcConfig
from nni_manager.platforms.dlc.ending import Ending
from nni_manager.platforms.dlc.listing import MOST_QUESTIONS, JobList, MissingJobs, RestartRecords
from nni_manager.platforms.dlc.submitting import LIST_LAG_S, Submissions, Submitting
from nni_manager.shared_storage.job_folders import JobFolders
from nni_manager.shared_storage.mounted_storage import MountedStorage, variables_of
from nni_manager.shared_storage.storage_folders import make_root
from nni_manager.web_services.account import WebLease
from nni_manager.web_services.jobs import loop_s
from trial_runner import protocol

#: Our folder below the mount point, as in NNI.
FOLDER = "nni-experiments"
#: Seconds for a job's files to appear after its end.
_READ_PATIENCE_S = 5.0
#: States that are reported even later: PAI-DLC may end a job before its results are read.
_HELD = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.PREEMPTED)
_SLOW_POLL_S = 30.0
#: Seconds during which calls share one list.
_FRESH_S = 2.0
#: Maximum number of concurrent submissions; more would only wait for the rate limit.
_MOST_SUBMISSIONS = 20
T = TypeVar("T")


class DlcPlatform(Platform[DlcConfig]):
    """The adapter of `dlc`. `clock`: milliseconds since the epoch; `list_lag_s`: see `submitting`;
    `loss_apart_s`: see `ConfirmedLoss`."""

    instead_of_shared_storage: ClassVar[str] = (
        "set nasDataSourceId or ossDataSourceId to a data source of PAI, and localStorageMountPoint and"
        " containerStorageMountPoint to its paths here and in jobs"
    )
    capabilities = Capabilities(
        watches=False,
        reads_files=True,
        has_runner=True,
        is_read=True,
        ships_code=True,
        has_portal=True,
        slow_poll_s=_SLOW_POLL_S,
    )

    def __init__(
        self,
        config: DlcConfig,
        host: Host,
        clock: Clock = now_ms,
        *,
        list_lag_s: float = LIST_LAG_S,
        fresh_s: float = _FRESH_S,
        loss_apart_s: float = APART_S,
    ) -> None:
        super().__init__(config, host)
        self._clock, self._lag_s = clock, list_lag_s
        self._lease = WebLease(
            host.connections,
            self.connection_key(config),
            f"{host.service}:{host.experiment_id}",
            lambda: DlcAccount(self.connection_key(self.config), self.config),
            config.access_key_secret,
        )
        self._mount_point = Path(config.local_storage_mount_point)
        there = f"{config.container_storage_mount_point.rstrip('/')}/{FOLDER}"
        self._storage = MountedStorage.of(host, self._mount_point / FOLDER, there, config.storage_mode)
        self._jobs = JobList(self._read, host.experiment_id, fresh_s)
        self._submissions = Submissions(host.folder / host.service)
        self._submitting = Submitting(self._lease, self._jobs, self._submissions, clock, list_lag_s)
        self._ending = Ending(self._raw_read, self._write, clock)
        self._locks: dict[str, asyncio.Lock] = {}
        self._under_way = 0
        self._folders = JobFolders(host, patience_s=_READ_PATIENCE_S, held=_HELD)
        #: Ids of jobs that the service has reported.
        self._seen: set[str] = set()
        self._restarts = RestartRecords(lambda id: self._raw_read(_getting(id)))
        self._missing = MissingJobs(
            lambda handle: self._raw_read(_getting(_id(handle))),
            ConfirmedLoss(loop_s, apart_s=loss_apart_s, most=MOST_QUESTIONS),
            self._folders.pull.has_ended,
        )
        #: Runners of earlier jobs did not reach the manager; later ones skip the attempt.
        self._is_out_of_reach = False

    @classmethod
    def connection_key(cls, config: DlcConfig) -> str:
        """The key of the account's connection. It contains a hash of the access key's id."""
        owner = hashlib.sha256(config.access_key_id.encode()).hexdigest()[:16]
        return f"dlc://{owner}@{config.endpoint or config.region}/{config.workspace_id or ''}"

    def renew(self, config: DlcConfig) -> None:
        super().renew(config)
        self._lease.renew(self.config.access_key_secret, self.connection_key(config))

    async def preflight(self) -> Sequence[PreflightFinding]:
        async with self._lease.entered():
            return await preflight.look(self.config, self._mount_point, self._raw_read)

    async def __aenter__(self) -> Self:
        await self._lease.enter_checked()
        self._folders.enter(self._storage)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._folders.leave()
        await self._jobs.close()
        await self._lease.leave()

    def room(self) -> Room:
        free = max(0, _MOST_SUBMISSIONS - self._under_way)
        sentence = f"{self._under_way} jobs are being submitted to PAI-DLC; its rate limit allows no more"
        return Room(free=free, why=None if free else Wait(code=WaitCode.CONCURRENCY, sentence=sentence))

    # Verbs

    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        self._under_way += 1
        try:
            async with self._locks.setdefault(spec.name, asyncio.Lock()):
                return await self._submit(spec)
        finally:
            self._under_way -= 1
            if self._under_way == _MOST_SUBMISSIONS - 1:
                self.host.wake("")

    async def _submit(self, spec: JobSpec) -> JobHandle:
        with self._disk():
            submission = await self._submitting.known(spec)
            if submission is None:
                submission = await self._submitting.send(spec, await self._prepare(spec))
        data = json.dumps({"id": submission.job_id, "sentMs": submission.sent_ms})
        link = self._link(submission.job_id)
        return JobHandle(platform=self.config.platform, version=1, job_name=spec.name, data=data, link=link)

    async def _prepare(self, spec: JobSpec) -> dict[str, object]:
        """The body of CreateJob, after everything the job needs is on the NAS."""
        await asyncio.to_thread(make_root, self._mount_point, FOLDER)  # also fails if the NAS is not mounted
        told = spec if not self._is_out_of_reach else dataclasses.replace(spec, runner_environment={})
        variables = variables_of(told, self.config.platform)
        folder = await self._storage.put(spec, variables, self.host.code)
        command = job.start_command(self.config, lambda replica: self._storage.start_command(folder, replica))
        token = told.runner_environment.get(protocol.ENV_TOKEN)
        return job.creation(self.config, spec, command, {protocol.ENV_TOKEN: token} if token else {})

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """A context that raises PlatformUnavailable if this machine's disk or the NAS is not usable."""
        try:
            yield
        except OSError as error:
            place = error.filename or self._mount_point
            raise PlatformUnavailable(
                f"{place} is not usable: {error.strerror}; check that the NAS is mounted there"
            ) from error

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        listed = await self._jobs.read(min(_sent_ms(handle) for handle in handles))
        self._seen |= listed.keys()
        await self._ending.look(listed)
        missing = [handle for handle in handles if _id(handle) not in listed and not self._may_be_late(handle)]
        asked = await self._missing.look(missing, is_list_complete=self._jobs.is_complete)
        ours = {id: listed[id] for id in map(_id, handles) if id in listed}
        whole = {id: await self._restarts.completed(id, item) for id, item in ours.items()}
        return {handle: self._report(handle, whole.get(_id(handle)), asked) for handle in handles}

    def _may_be_late(self, handle: JobHandle) -> bool:
        return _id(handle) not in self._seen and self._clock() - _sent_ms(handle) < self._lag_s * 1000

    def _report(self, handle: JobHandle, item: Item | None, asked: Mapping[JobHandle, Item | None]) -> Observation:
        if item is None and handle in asked:
            item = asked[handle]
            if item is None:
                return Observation(
                    state=JobState.LOST, native_reason="REMOVED", message="the job no longer exists in PAI-DLC"
                )
        link = self._link(_id(handle))
        if item is not None:
            self._missing.seen(handle.job_name)
        else:
            late = self._may_be_late(handle)
            report = Observation(
                state=JobState.PENDING if late else JobState.UNKNOWN, link=link, wait=_ACCEPTED if late else None
            )
            return report if late else self._folders.told(handle.job_name, report)
        return self._with_what_is_read(handle, states.job_report(item, link))

    def _link(self, id: str) -> str:
        return f"https://pai-dlc.console.aliyun.com/#/jobs/detail?jobId={id}&regionId={self.config.region}"

    def _with_what_is_read(self, handle: JobHandle, report: Observation) -> Observation:
        """The report to return: the end is held back until the job's files have been read."""
        told = self._folders.told(handle.job_name, report)
        self._is_out_of_reach = self._is_out_of_reach or self._folders.pull.has_started(handle.job_name)
        return told if told.state is not JobState.FAILED else self._explained(told, self._folders.here(handle.job_name))

    def _explained(self, report: Observation, folder: Path) -> Observation:
        """The report on a failed job, with a reason: PAI-DLC reports no exit codes. A job without any files mounted
        another storage, or never started."""
        if (folder / protocol.CODE_FOLDER).exists():
            return report
        sentence = (
            f"its container left no files on the NAS ({report.message.rstrip('.')}): check image, and that"
            f" nasDataSourceId is the NAS mounted at localStorageMountPoint, {self._mount_point}"
        )
        return dataclasses.replace(report, message=sentence)

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        await self._folders.ask_to_stop(handle.job_name for handle in handles)
        await self._ending.stop([_id(handle) for handle in handles])

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        """Forgets jobs, and stops those that still run.

        Their pages in the console and their files stay: both belong to the user.
        """
        for handle in handles:
            self._folders.forget(handle.job_name)
            self._missing.forget(handle.job_name)
            self._restarts.forget(_id(handle))
            self._locks.pop(handle.job_name, None)
            has_ended = await asyncio.to_thread((self._folders.here(handle.job_name) / protocol.EXIT_FILE).exists)
            await self._ending.leave(_id(handle), is_ending=has_ended)

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        return await self._folders.read(handle.job_name, name, offset, limit)

    async def list_files(self, handle: JobHandle) -> Sequence[str]:
        return await self._folders.files(handle.job_name)

    async def close(self) -> None:
        await self._ending.finish()
        await self._storage.remove_shared()

    async def clean(self, job_names: Sequence[str]) -> None:
        """Stops these jobs if entered; otherwise stops all of the experiment's jobs and removes their files."""
        async with self._lease.entered():
            sent = [await asyncio.to_thread(self._submissions.get, name) for name in job_names]
            since_ms = min((one.sent_ms for one in sent if one is not None), default=self._clock() - _MONTH_MS)
            listed = await self._jobs.read(since_ms)
            if self._folders.is_entered:
                listed = {id: item for id, item in listed.items() if job.name_of(item) in job_names}
            ids = {one.job_id for one in sent if one is not None and one.job_id} | listed.keys()
            await self._ending.stop(sorted(ids))
        if not self._folders.is_entered:
            await self._jobs.close()
            await self._storage.remove()

    # The account

    async def _read(self, verb: Callable[[DlcClient], Awaitable[T]]) -> T:
        """The answer to a query. A refusal that concerns no single job becomes PlatformUnavailable."""
        try:
            return await self._raw_read(verb)
        except DlcRefused as error:
            raise PlatformUnavailable(str(error)) from error

    async def _raw_read(self, verb: Callable[[DlcClient], Awaitable[T]]) -> T:
        return await self._lease.call(lambda account: account.read(verb))

    async def _write(self, verb: Callable[[DlcClient], Awaitable[T]]) -> T:
        return await self._lease.call(lambda account: account.write(verb))


_MONTH_MS = 31 * 24 * 3600 * 1000
_ACCEPTED = Wait(code=WaitCode.SUBMITTED, sentence="PAI-DLC accepted the job but does not list it yet")


def _getting(id: str) -> Callable[[DlcClient], Awaitable[Item | None]]:
    return lambda client: client.get_job(id)


def _id(handle: JobHandle) -> str:
    return str(json.loads(handle.data)["id"])


def _sent_ms(handle: JobHandle) -> int:
    return int(json.loads(handle.data)["sentMs"])
