"""The adapter of OpenPAI: each attempt is one job of the cluster.

Runners report over the network or, if that fails, through the team's storage, which this machine and the containers
mount. One list of jobs serves all experiments of an account.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import urlencode

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import InvalidInput, SubmitRejected
from nni_manager.domain.experiment import ExperimentSpec, Json
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.platform_kit.contract import Host, NoRoom, PreflightFinding, Room
from nni_manager.platforms.openpai import job as jobs
from nni_manager.platforms.openpai import preflight, states
from nni_manager.platforms.openpai.account import Listing, OpenpaiAccount, credential_of, key_of
from nni_manager.platforms.openpai.config import OpenpaiConfig
from nni_manager.platforms.openpai.job import UserJob
from nni_manager.shared_storage import mount_by_job
from nni_manager.shared_storage.mount_by_job import OwnMount
from nni_manager.shared_storage.mounted_storage import MountedStorage, variables_of
from nni_manager.shared_storage.shared_folder import KINDS, OnSharedStorage
from nni_manager.web_services.account import Refused
from nni_manager.web_services.jobs import WebJobs, all_of, name_of, names_of
from trial_runner import protocol

#: Maximum seconds that a submission waits for the rate limit; beyond it, it has no room.
_SHORT_WAIT_S = 5.0
#: For users whose jobs cannot mount shared storage.
_OTHERWISE = "or remove sharedStorage; jobs can then store files in a storage of OpenPAI (storageConfigName)"
_FIELDS = ("localStorageMountPoint", "containerStorageMountPoint")
#: OpenPAI's error code → the wrong field.
_FAULTS = {
    "NoVirtualClusterError": "virtualCluster",
    "ForbiddenUserError": "virtualCluster",
    "NoStorageError": "storageConfigName",
    "InvalidProtocolError": "openpaiConfig",
}


class OpenpaiPlatform(OnSharedStorage[OpenpaiConfig], WebJobs[OpenpaiAccount, OpenpaiConfig]):
    """The adapter of `openpai`: it polls the cluster and reads results from the storage."""

    in_containers = True
    mounts: ClassVar[frozenset[str]] = KINDS
    changeable: ClassVar[frozenset[str]] = frozenset(
        {
            "dockerImage",
            "trialCpuNumber",
            "trialMemorySize",
            "virtualCluster",
        }
    )

    def __init__(self, config: OpenpaiConfig, host: Host) -> None:
        super().__init__(config, host)
        self._user_job = UserJob(config, host.folder / host.service / "job.yml")

    def _account(self) -> OpenpaiAccount:
        return OpenpaiAccount(self.config.host, self.config.username)

    @classmethod
    def _credential(cls, config: OpenpaiConfig) -> str:
        return credential_of(config)

    @classmethod
    def connection_key(cls, config: OpenpaiConfig) -> str:
        return key_of(config.host, config.username)

    @classmethod
    def check(cls, spec: ExperimentSpec, config: OpenpaiConfig) -> None:
        mount_by_job.check(spec.shared_storage, "openpai")
        user_job = UserJob(config, None).read()
        jobs.mount_point(config, user_job)
        if user_job is not None:
            jobs.reporting_role(user_job, config)
            if spec.shared_storage is not None:
                jobs.require_one_task(user_job)
        elif config.reporter is not None:
            raise InvalidInput("reporter: requires a job configuration with that task role; remove it")

    async def preflight(self) -> Sequence[PreflightFinding]:
        storage = () if self._shared is None else (await self._shared.preflight(),)
        return (*storage, *await preflight.look(self.config, self._lease))

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._user_job.keep)
        return await super().__aenter__()

    def room(self) -> Room:
        wait_s = self._lease.connection.submit_wait_s()
        return Room(free=0, why=_too_often(wait_s)) if wait_s > _SHORT_WAIT_S else Room()

    # Submitting

    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        if (wait_s := self._lease.connection.submit_wait_s()) > _SHORT_WAIT_S and not spec.is_repeat:
            return NoRoom(why=_too_often(wait_s))
        make = await self._maker(spec)
        names = names_of(spec, "_")
        for name in names:
            if spec.is_repeat and (found := await self._config(name)) is not None:
                if jobs.is_of(found, spec):
                    return self._accepted(spec, name)
                continue
            outcome = await self._send(make(name), spec)
            if isinstance(outcome, NoRoom):
                return outcome
            if outcome:
                return self._accepted(spec, name)
        raise SubmitRejected(f"OpenPAI has other jobs named {' and '.join(names_of(spec, '_'))}; remove those")

    async def _maker(self, spec: JobSpec) -> Callable[[str], Json]:
        """Creates the job of a name, after its container's files are on storage."""
        own = OwnMount() if self._shared is None else await mount_by_job.prepared(self._shared, spec, _OTHERWISE)
        user_job = self._user_job.kept
        variables = variables_of(dataclasses.replace(spec, command=f"{own.prelude}{spec.command}"), "openpai")
        if user_job is not None:
            del variables[protocol.ENV_COMMAND]  # each role has its own command
        folder = await self._folders.storage.put(spec, variables, self.host.code, own.mount)
        start = partial(self._folders.storage.start_command, folder)
        secrets = jobs.Secrets(spec, self._key)
        if user_job is None:
            return lambda name: jobs.own_job(self.config, spec, name, start, secrets)
        return lambda name: jobs.users_job(user_job, self.config, spec, name, start, secrets, own.prelude)

    @property
    def _key(self) -> str:
        """The key of the shared storage's account; empty: it has none."""
        return "" if self._shared is None else str(self._shared.section.get("storageAccountKey") or "")

    async def _send(self, job: Json, spec: JobSpec) -> bool | NoRoom:
        """Whether a job was accepted; False: a foreign job has that name. Raises SubmitRejected."""
        name = str(job["name"])
        try:
            await self._lease.call(lambda account: account.submit(job))
        except Refused as error:
            if error.code == "ConflictJobError":
                return jobs.is_of(await self._config(name), spec)
            if error.code == "NoEnoughQuotaError":
                return NoRoom(why=Wait(code=WaitCode.QUOTA, sentence=f"OpenPAI: {error.words}"))
            field = _FAULTS.get(error.code)
            raise SubmitRejected(f"{field}: {error.words}" if field else f"OpenPAI refused the job: {error}") from None
        return True

    async def _config(self, name: str) -> Any | None:
        return await self._lease.call(lambda account: account.config(name))

    # Observing

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        self._lease.connection.followed[self._owner] = len(handles)
        listing = await self._lease.call(lambda account: account.jobs(self._accepted_s))
        unlisted = [handle for handle in handles if name_of(handle) not in listing.entries]
        asked = {handle: await self._asked(handle, listing) for handle in self._loss.due(unlisted)}
        reports = {}
        for handle in handles:
            report = asked.get(handle) or await self._seen(handle, listing)
            reports[handle] = self._folders.told(handle.job_name, report)
        return reports

    async def _seen(self, handle: JobHandle, listing: Listing) -> Observation:
        entry = listing.entries.get(name_of(handle))
        if entry is None:
            return Observation(state=JobState.UNKNOWN)  # a later round queries it
        return await self._judged(handle, entry)

    async def _asked(self, handle: JobHandle, listing: Listing) -> Observation:
        detail = await self._lease.call(lambda account: account.detail(name_of(handle)))
        if detail is None:
            return self._missing(handle, "the job no longer exists in OpenPAI")
        if listing.is_cut_off:
            self._lease.connection.note_overlooked()
        return await self._judged(handle, detail)

    async def _judged(self, handle: JobHandle, entry: Any) -> Observation:
        """The report on a job, from its list entry or its detail. An end is computed once."""
        self._loss.found(handle.job_name)
        if handle.job_name in self._ended:
            return self._ended[handle.job_name]
        detail = None
        # the list lacks the reason: OpenPAI replaces exit codes there; the detail has the container's
        if entry.get("state") == "FAILED" and "appExitSpec" not in entry:
            detail = await self._lease.call(lambda account: account.detail(name_of(handle)))
        report = states.report(entry, detail)
        place = f"files in {self._folders.here(handle.job_name)}"
        report = dataclasses.replace(report, link=self._link(handle), place=place)
        unmounted = None if self._shared is None else mount_by_job.explained(report)
        return self._noted(handle, unmounted or self._folders.storage.explained(report, _FIELDS))

    def _link(self, handle: JobHandle) -> str:
        query = urlencode({"username": self.config.username, "jobName": name_of(handle)})
        return f"{self.config.host}/job-detail.html?{query}"

    async def _read(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        return await self._folders.read(handle.job_name, name, offset, limit)

    # Ending

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        await self._collect(handles)
        await super().forget(handles)

    async def clean(self, job_names: Sequence[str]) -> None:
        async with self._lease.entered():
            for name in job_names:
                await all_of(map(self._stop_one, await self._called(name)))
            if not self._folders.is_entered:  # while entered, other jobs may not have started yet
                await self._made_storage().remove_shared()

    def _made_storage(self) -> MountedStorage:
        """The storage that jobs and the manager share. The section or the stored job has its path in containers."""
        there = jobs.mount_point(self.config, self._user_job.kept or _read(self._user_job))
        here = Path(self.config.local_storage_mount_point)
        return MountedStorage.of(self.host, here, there, self.config.storage_mode)

    async def _called(self, job_name: str) -> list[str]:
        """Names of the jobs submitted for this one; if there are two, the first is of a foreign job."""
        listing = await self._lease.call(lambda account: account.jobs(float("-inf")))
        others = [name for name in listing.entries if name.startswith(f"{job_name}_")]
        ours = self.host.experiment_id
        names = others or [job_name]
        return [name for name in names if jobs.mark_in(await self._config(name)).get("experiment") == ours]

    async def _stop(self, handles: Sequence[JobHandle]) -> None:
        await all_of(self._stop_one(name_of(handle)) for handle in handles)

    async def _stop_one(self, name: str) -> None:
        await self._lease.call(lambda account: account.stop(name))


def _too_often(wait_s: float) -> Wait:
    return Wait(code=WaitCode.QUOTA, sentence=f"OpenPAI accepts the account's next job in {wait_s:.0f} s")


def _read(user_job: UserJob) -> Mapping[str, Any] | None:
    """The user's job; None: there is none, or its file no longer exists."""
    try:
        return user_job.read()
    except InvalidInput:
        return None
