"""Runs trials on this machine, in the user's own code directory, through the keeper that outlives the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ExperimentSpec, Json, PlatformSpec
from nni_manager.domain.job import JobHandle, JobReport, JobSpec
from nni_manager.platform_kit.attempt_file import read_stretch
from nni_manager.platform_kit.contract import Capabilities, Host, Platform
from nni_manager.platform_kit.keeper_jobs import KeeperJobs
from nni_manager.platform_kit.payload import directory_environment, with_stand_in
from trial_runner import protocol


class LocalPlatform(Platform):
    """The keeper tells of every change; `observe` answers from what it told."""

    capabilities = Capabilities(watches=True, reads_files=True)

    def __init__(self, settings: Json, host: Host) -> None:
        super().__init__(settings, host)
        self.jobs = KeeperJobs(host)

    @classmethod
    def check(cls, spec: ExperimentSpec, service: PlatformSpec) -> None:
        if service.settings.get("trialGpuNumber", spec.trial_gpu_number):
            raise InvalidInput(
                "trialGpuNumber: this version gives no GPUs to trials on `local`; leave it out, or set it to 0"
            )

    async def __aenter__(self) -> Self:
        await self.jobs.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        await self.jobs.leave()

    async def submit(self, spec: JobSpec) -> JobHandle:
        job = {
            "command": spec.command,
            "environment": _environment(spec),
            "directory": spec.code_directory,
            "attempt_directory": spec.attempt_directory,
            "files": {protocol.PARAMETER_FILE: spec.parameter_record},
            "grace_s": spec.grace_period_s,
            "from": dict(spec.stored),
        }
        await self.jobs.submit(spec.name, job)
        return JobHandle(platform="local", version=1, job_name=spec.name, data=spec.attempt_directory)

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, JobReport]:
        reports = await self.jobs.reports([handle.job_name for handle in handles])
        return {handle: reports[handle.job_name] for handle in handles}

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        await self.jobs.cancel([handle.job_name for handle in handles], grace_period_s)

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        await self.jobs.forget([handle.job_name for handle in handles])

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        return await asyncio.to_thread(read_stretch, Path(handle.data), name, offset, limit)

    async def clean(self, job_names: Sequence[str]) -> None:
        await self.jobs.clean(job_names)


def _environment(spec: JobSpec) -> dict[str, str]:
    """The caller's environment, then the trial protocol. `trialGpuNumber` 0 hides the GPUs, unset leaves them alone."""
    gpus = {protocol.ENV_GPUS: ""} if spec.gpu_number == 0 else {}
    return {
        **with_stand_in(spec.caller_environment),
        **spec.protocol_environment,
        **directory_environment(spec.attempt_directory, spec.code_directory),
        protocol.ENV_PLATFORM: "local",
        protocol.ENV_COMMAND_CHANNEL: protocol.COMMAND_CHANNEL,
        **gpus,
    }
