"""The adapter of DLWorkspace: each attempt is one of its jobs.

Jobs and a manager that runs on DLWorkspace share the user's home folder. Code, trial runner and results are in the
experiment's folder, unless the section sets another shared storage.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import BadCredentials, InvalidInput, PlatformUnavailable, SubmitRejected
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platforms.dlts import states
from nni_manager.platforms.dlts.account import DltsAccount, Entry, key_of
from nni_manager.platforms.dlts.config import DltsConfig
from nni_manager.platforms.dlts.job import ids_of, job, job_id
from nni_manager.shared_storage.mounted_storage import MountedStorage, variables_of
from nni_manager.web_services.account import Refused
from nni_manager.web_services.jobs import WebJobs

#: Field → variable of the manager's environment, which DLWorkspace sets in its jobs.
_VARIABLES = {"team": "DLWS_VC_NAME", "email": "DLWS_USER_EMAIL", "password": "DLTS_JOB_TOKEN"}
#: DLWorkspace's message for every failure to store a job, including a duplicate id.
_NOT_STORED = "Cannot add job into database"
#: Number of failed jobs per round whose reason is queried, and seconds for all of them.
_MOST_EXPLAINED, _EXPLAINED_S = 10, 5.0


class DltsPlatform(WebJobs[DltsAccount, DltsConfig]):
    """The adapter of `dlts`: it polls the dashboard and reads results from the runners' folders."""

    instead_of_shared_storage: ClassVar[str] = (
        "set localStorageMountPoint and containerStorageMountPoint to the paths of the home folder that jobs share,"
        " here and in jobs"
    )
    changeable: ClassVar[frozenset[str]] = frozenset({"dockerImage"})

    def _account(self) -> DltsAccount:
        return DltsAccount(*_account_settings(self.config))

    @classmethod
    def _credential(cls, config: DltsConfig) -> str:
        return _value(config, "password")

    @classmethod
    def connection_key(cls, config: DltsConfig) -> str:
        return key_of(*_account_settings(config))

    @classmethod
    def check(cls, spec: ExperimentSpec, config: DltsConfig) -> None:
        for field, variable in _VARIABLES.items():
            if not _value(config, field):
                raise InvalidInput(f"{field}: is required and not set; add it, or set {variable} for the manager")
        if bool(config.local_storage_mount_point) != bool(config.container_storage_mount_point):
            raise InvalidInput("localStorageMountPoint and containerStorageMountPoint: set both or neither")

    async def preflight(self) -> Sequence[PreflightFinding]:
        try:
            async with self._lease.entered():
                return [await self._looked()]
        except BadCredentials as error:
            return [PreflightFinding(Severity.WRONG, "password", str(error), "correct email and password")]
        except Refused as error:
            return [
                PreflightFinding(
                    Severity.WRONG, "dashboard", str(error), "check that this is the address of a dashboard"
                )
            ]
        except PlatformUnavailable as error:
            return [PreflightFinding(Severity.AWAY, "dashboard", str(error))]

    async def _looked(self) -> PreflightFinding:
        """The finding on account and team. The list of teams lacks teams whose cluster is unreachable, so an unlisted
        team is checked with the cluster."""
        teams = await self._lease.call(lambda account: account.teams())
        email, team = _value(self.config, "email"), _value(self.config, "team")
        if team not in teams:
            try:
                await self._lease.call(lambda account: account.gpu_type())
            except Refused as error:
                others = f"; teams: {', '.join(teams)}" if teams else ""
                sentence = f"{email} is not in the team '{team}' ({error.words}){others}"
                return PreflightFinding(Severity.WRONG, "team", sentence, "set team to a team of the account")
        return PreflightFinding(Severity.FINE, "dashboard", f"{email} is logged in")

    def _made_storage(self) -> MountedStorage:
        own = self.host.folder / self.host.service
        here = Path(self.config.local_storage_mount_point or own)
        if here == own:
            own.mkdir(mode=0o755, parents=True, exist_ok=True)
        there = self.config.container_storage_mount_point or str(here)
        return MountedStorage.of(self.host, here, there, self.config.storage_mode)

    # Submitting

    async def submit(self, spec: JobSpec) -> JobHandle:
        id = job_id(spec.experiment_id, spec.name, spec.nonce)
        if spec.is_repeat and await self._status(id) is not None:
            return self._accepted(spec, id)
        storage = self._folders.storage
        folder = await storage.put(spec, variables_of(spec, "dlts"), self.host.code)
        gpu_type = await self._gpu_type() if spec.gpu_number else ""
        made = job(
            id,
            spec,
            team=_value(self.config, "team"),
            email=_value(self.config, "email"),
            image=self.config.docker_image,
            gpu_type=gpu_type,
            command=storage.start_command(folder),
        )
        try:
            fault = await self._lease.call(lambda account: account.submit(made))
        except Refused as error:
            raise SubmitRejected(f"DLWorkspace refused the job: {error}") from None
        if fault and await self._status(id) is None:
            if _NOT_STORED in fault:
                raise PlatformUnavailable(f"DLWorkspace: {fault}", refused=True)
            raise SubmitRejected(f"DLWorkspace: {fault}")
        return self._accepted(spec, id)

    async def _status(self, id: str) -> Entry | None:
        return await self._lease.call(lambda account: account.status(id))

    async def _gpu_type(self) -> str:
        try:
            return await self._lease.call(lambda account: account.gpu_type())
        except Refused as error:
            raise SubmitRejected(f"cluster: DLWorkspace refused a query about it for this team: {error}") from None

    # Observing

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        self._lease.connection.followed[self._owner] = len(handles)
        listed = await self._lease.call(lambda account: account.jobs(self._accepted_s))
        entries = {handle: listed[handle.data] for handle in handles if handle.data in listed}
        unlisted = self._loss.due([handle for handle in handles if handle not in entries])
        asked = {handle: await self._asked(handle) for handle in unlisted}
        entries |= await self._explained(entries)
        reports = {handle: self._judged(handle, entry) for handle, entry in entries.items()} | asked
        unknown = Observation(state=JobState.UNKNOWN)  # a later round queries it
        return {handle: self._folders.told(handle.job_name, reports.get(handle, unknown)) for handle in handles}

    async def _explained(self, entries: Mapping[JobHandle, Entry]) -> dict[JobHandle, Entry]:
        """The entries of jobs that have just failed, with the service's reasons, which the list lacks.

        No end waits for its reason: some jobs per round are queried, within a time limit.
        """
        failed = [handle for handle, entry in entries.items() if _has_failed(entry)]
        new = [handle for handle in failed if handle.job_name not in self._ended]
        found: dict[JobHandle, Entry] = {}
        with suppress(TimeoutError, PlatformUnavailable, BadCredentials):
            async with asyncio.timeout(_EXPLAINED_S):
                for handle in new[:_MOST_EXPLAINED]:
                    if (entry := await self._status(handle.data)) is not None and _has_failed(entry):
                        found[handle] = entry
        return found

    async def _asked(self, handle: JobHandle) -> Observation:
        entry = await self._status(handle.data)
        if entry is None:  # also after a failed query of its database
            return self._missing(handle, "the job no longer exists in DLWorkspace")
        return self._judged(handle, entry)

    def _judged(self, handle: JobHandle, entry: Entry) -> Observation:
        self._loss.found(handle.job_name)
        if handle.job_name in self._ended:
            return self._ended[handle.job_name]
        report = dataclasses.replace(
            states.report(entry),
            link=f"{self.config.dashboard}jobs/{self.config.cluster}/{handle.data}",
            place=f"files in {self._folders.here(handle.job_name)}",
        )
        return self._noted(handle, report)

    # Ending

    async def clean(self, job_names: Sequence[str]) -> None:
        async with self._lease.entered():
            listed = await self._lease.call(lambda account: account.jobs(float("-inf")))
            patterns = [ids_of(self.host.experiment_id, name) for name in job_names]
            await self._kill([id for id in listed if any(one.fullmatch(id) for one in patterns)])
        if self.config.local_storage_mount_point and not self._folders.is_entered:
            await self._made_storage().remove_shared()

    async def _stop(self, handles: Sequence[JobHandle]) -> None:
        await self._kill([handle.data for handle in handles])

    async def _kill(self, ids: Sequence[str]) -> None:
        await self._lease.call(lambda account: account.kill(ids))


def _has_failed(entry: Entry) -> bool:
    return states.job_state(str(entry.get("jobStatus"))) is JobState.FAILED


def _value(config: DltsConfig, field: str) -> str:
    """The value of a field: from the section, or the variable that DLWorkspace sets in its jobs; empty: neither."""
    return str(getattr(config, field) or os.environ.get(_VARIABLES[field], ""))


def _account_settings(config: DltsConfig) -> tuple[str, str, str, str]:
    """The settings that name an account: dashboard, cluster, team, email."""
    return config.dashboard, config.cluster, _value(config, "team"), _value(config, "email")
