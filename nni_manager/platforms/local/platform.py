"""The adapter of `local`: trials run on this machine, under the keeper, which outlives the daemon.

They work in the user's code directory or, with `sharedStorage`, in a copy of it on the storage.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from nni_manager.domain.attempt import Observation
from nni_manager.domain.ids import attempt_directory_of, checkpoint_directory_of
from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.machines.gpu_machines import MachinePool, PoolMachine, demand_of, gpu_environment
from nni_manager.machines.keeper.jobs import KeeperJobs, spawn_request
from nni_manager.machines.ledger import Reservation
from nni_manager.machines.waiting_queue import KeeperMachine
from nni_manager.platform_kit import payload, trial_python
from nni_manager.platform_kit.contract import Capabilities, Host, JobPlan, NoRoom, PreflightFinding, Room
from nni_manager.platform_kit.machine_report import MachineReport
from nni_manager.platform_kit.payload import directory_environment, with_stand_in
from nni_manager.platforms.local.config import LocalConfig
from nni_manager.shared_storage.job_folders import files, read_stretch
from nni_manager.shared_storage.shared_folder import KINDS, OnSharedStorage, SharedFolder
from trial_runner import protocol

#: This machine in the ledger.
_THIS_MACHINE = KeeperMachine(name="local:this machine", places=None)


class LocalPlatform(OnSharedStorage[LocalConfig]):
    """The adapter of `local`: the keeper reports every change; `observe` answers from memory."""

    capabilities = Capabilities(watches=True, reads_files=True)
    mounts: ClassVar[frozenset[str]] = KINDS

    def __init__(self, config: LocalConfig, host: Host) -> None:
        super().__init__(config, host)
        self.jobs = KeeperJobs(host) if self._shared is None else _Jobs(host, self._shared)
        is_shared = self._shared is not None
        self.capabilities = replace(
            self.capabilities,
            ships_code=is_shared,
            runs_in_place=not is_shared,
            removes_checkpoints=not is_shared,
        )
        #: None: trials reserve no GPUs, and need no places.
        self._pool = self._machine_pool() if self.config.trial_gpu_number else None

    def _machine_pool(self) -> MachinePool:
        demand = demand_of(
            self.config.trial_gpu_number,
            gpu_indices=self.config.gpu_indices,
            max_trial_number_per_gpu=self.config.max_trial_number_per_gpu,
            use_active_gpu=self.config.use_active_gpu,
            gpu_memory_mib=self.config.trial_gpu_memory,
        )
        machine = PoolMachine(machine=_THIS_MACHINE, demand=demand, jobs=self.jobs)
        return MachinePool(self.host, [machine], lambda: self.host.wake(""))

    async def preflight(self) -> Sequence[PreflightFinding]:
        storage = () if self._shared is None else (await self._shared.preflight(),)
        return (*storage, *await self._look_at_python(), *await self._look_at_gpus())

    async def _look_at_python(self) -> Sequence[PreflightFinding]:
        needed, environment = self.config.trial_python_version, self.host.caller_environment
        if needed is None or environment is None:
            return ()
        found = await trial_python.ask_here(environment)
        return (found.finding("python3 of trials", needed, "put {} first on the PATH of trials"),)

    async def _look_at_gpus(self) -> Sequence[PreflightFinding]:
        if self._pool is None:
            return ()
        # under another name: with its own, the keeper would stop reporting to the experiment
        host = replace(self.host, service=f"preflight of {self.host.service}")
        async with LocalPlatform(self.config, host) as looking:
            assert looking._pool is not None, "it has the same settings"
            return await looking._pool.preflight()

    async def __aenter__(self) -> Self:
        await self.jobs.enter([_THIS_MACHINE] if self._pool is not None else [])
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.want(0)
        await self.jobs.leave()

    # GPUs

    def room(self) -> Room:
        return Room() if self._pool is None else self._pool.room()

    def machines(self) -> Sequence[MachineReport]:
        ledger = _THIS_MACHINE.name if self._pool is not None else ""
        return [
            MachineReport(
                name="this machine",
                key=_THIS_MACHINE.name,
                ledger=ledger,
                processors=os.cpu_count(),
                load=os.getloadavg()[0],
            )
        ]

    def want(self, jobs: int) -> None:
        if self._pool is not None:
            self._pool.want(jobs)

    async def plan(self, jobs: int) -> JobPlan | None:
        return JobPlan(places=["this machine"] * jobs) if self._pool is None else await self._pool.plan(jobs)

    # Verbs

    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        if self._pool is None or not spec.gpu_number:
            await self._start(spec, None)
            return JobHandle(platform="local", version=1, job_name=spec.name, data=spec.attempt_directory)
        found = await self._pool.reserve(spec)
        if isinstance(found, NoRoom):
            return found
        with self._pool.held(found, spec.name):
            await self._start(spec, found.reservation)
        return JobHandle(platform="local", version=1, job_name=spec.name, data=spec.attempt_directory)

    async def _start(self, spec: JobSpec, reservation: Reservation | None) -> None:
        place = await self._place(spec)
        job = spawn_request(
            spec,
            command=place.command,
            directory=place.directory,
            attempt_directory=spec.attempt_directory,
            environment={**_environment(spec, reservation), **place.environment},
        )
        await self.jobs.submit(spec.name, job, reservation)

    async def _place(self, spec: JobSpec) -> _Place:
        if self._shared is None:
            return _Place(command=spec.command, directory=spec.code_directory)
        await self._shared.place(spec)
        there = str(self._shared.here)
        # the command changes to its folder itself: a hanging storage folder would block the keeper
        return _Place(
            command=self._shared.command(spec, there, sys.executable),
            directory="/",
            environment=self._shared.environment(spec.name, there),
        )

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        await self.jobs.until_connected()  # right after the daemon's start this is short, and not an outage
        reports = await self.jobs.reports([handle.job_name for handle in handles])
        return {handle: reports[handle.job_name] for handle in handles}

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        await self.jobs.cancel([handle.job_name for handle in handles], grace_period_s)

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        await self._collect(handles)
        await self.jobs.forget([handle.job_name for handle in handles])

    async def remove_checkpoints(self, handles: Sequence[JobHandle]) -> Mapping[JobHandle, str]:
        # the experiment's folder may have been copied or moved since the handle was made
        trials = f"{self.host.folder}/trials"
        own = {
            handle: f"{trials}/{checkpoint_directory_of(attempt_directory_of(handle.job_name))}" for handle in handles
        }
        stays = await asyncio.to_thread(payload.remove_folders, set(own.values()))
        return {handle: stays[folder] for handle, folder in own.items() if folder in stays}

    async def _read(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        return await asyncio.to_thread(lambda: read_stretch(self._folder_of(handle), name, offset, limit))

    async def list_files(self, handle: JobHandle) -> Sequence[str]:
        return await asyncio.to_thread(lambda: files(self._folder_of(handle)))

    def _folder_of(self, handle: JobHandle) -> Path:
        """The attempt's current folder: the experiment may have been copied or moved since. Blocks."""
        now = Path(self.jobs.attempt_folder(handle.job_name))
        return now if now.is_dir() else Path(handle.data)

    async def clean(self, job_names: Sequence[str]) -> None:
        await self.jobs.clean(job_names)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    command: str
    directory: str
    environment: Mapping[str, str] = field(default_factory=dict)


class _Jobs(KeeperJobs):
    """The jobs of a service whose trials work on shared storage."""

    def __init__(self, host: Host, shared: SharedFolder) -> None:
        super().__init__(host)
        self._shared = shared

    def report_of(self, job: Mapping[str, Any]) -> Observation:
        return self._shared.explained(super().report_of(job))


def _environment(spec: JobSpec, reservation: Reservation | None) -> dict[str, str]:
    """The environment of a trial: the caller's, then the trial protocol's, then its GPUs."""
    return {
        **with_stand_in(spec.caller_environment),
        **spec.protocol_environment,
        **directory_environment(spec.attempt_directory, spec.code_directory),
        protocol.ENV_PLATFORM: "local",
        protocol.ENV_COMMAND_CHANNEL: protocol.COMMAND_CHANNEL,
        **gpu_environment(spec, reservation),
    }
