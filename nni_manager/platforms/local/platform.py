"""Runs trials on this machine, in the user's own code directory, through the keeper that outlives the daemon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from nni_manager.domain.errors import InvalidInput, NniManagerError, NotFound, PlatformUnavailable
from nni_manager.domain.experiment import ExperimentSpec, Json
from nni_manager.domain.job import JobHandle, JobReport, JobSpec, JobState
from nni_manager.platform_kit.contract import Capabilities, Host, Platform
from nni_manager.platform_kit.payload import directory_environment, with_stand_in
from nni_manager.platforms.local.states import job_report
from trial_runner import protocol

log = logging.getLogger(__name__)


class LocalPlatform(Platform):
    """The keeper tells of every change; `observe` answers from what it told."""

    capabilities: ClassVar[Capabilities] = Capabilities(watches=True, reads_files=True)

    def __init__(self, settings: Json, host: Host) -> None:
        super().__init__(settings, host)
        self._reports: dict[str, JobReport] = {}
        #: Set once the keeper knows which jobs we follow; before that, a job we have no word of is not LOST.
        self._following = asyncio.Event()

    @classmethod
    def check(cls, spec: ExperimentSpec) -> None:
        if spec.trial_gpu_number:
            raise InvalidInput(
                "trialGpuNumber: this version gives no GPUs to trials on `local`; leave it out, or set it to 0"
            )

    async def __aenter__(self) -> Self:
        await self.host.keeper.listen(self.host.experiment_id, self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self.host.keeper.leave(self.host.experiment_id)

    async def submit(self, spec: JobSpec) -> JobHandle:
        job = await self.host.keeper.request(
            "spawn",
            name=spec.name,
            owner=spec.experiment_id,
            command=spec.command,
            environment=_environment(spec),
            directory=spec.code_directory,
            attempt_directory=spec.attempt_directory,
            files={protocol.PARAMETER_FILE: spec.parameter_record},
            grace_s=spec.grace_period_s,
        )
        self._take(spec.name, job)
        return JobHandle(platform="local", version=1, job_name=spec.name, data=spec.attempt_directory)

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, JobReport]:
        if not self._following.is_set():
            raise PlatformUnavailable(f"the keeper of this machine is away: {self.host.keeper.trouble or 'connecting'}")
        return {handle: self._reports.get(handle.job_name, _UNHEARD_OF) for handle in handles}

    async def cancel(self, handle: JobHandle, grace_period_s: float) -> None:
        await self.host.keeper.request("signal", name=handle.job_name, grace_s=grace_period_s)

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        names = [handle.job_name for handle in handles]
        await self.host.keeper.request("forget", names=names)
        for name in names:
            self._reports.pop(name, None)

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        return await asyncio.to_thread(_read_file, Path(handle.data), name, offset, limit)

    # What the keeper tells

    async def on_connected(self) -> None:
        try:
            followed = await self.host.followed()
            answer = await self.host.keeper.request(
                "follow", jobs={name: dict(offsets) for name, offsets in followed.items()}
            )
        except NniManagerError as error:
            log.warning("the keeper's jobs cannot be followed yet: %s", error)
            return
        for name, job in answer["jobs"].items():
            self._take(name, job)
        for name in answer["unknown"]:
            self._tell(name, _UNHEARD_OF)
        self._following.set()
        self.host.wake("")

    def on_disconnected(self) -> None:
        self._following.clear()
        self._reports.clear()
        self.host.wake("")

    async def on_lines(self, job_name: str, outbox: str, start: int, end: int, lines: list[str]) -> None:
        delivery = await self.host.deliver(job_name, outbox, start, end, lines)
        if delivery.resend:
            log.warning("a stretch of %s of job %s is missing; asking for it again", outbox, job_name)
            await self.on_connected()

    def on_ended(self, job_name: str, job: dict[str, Any]) -> None:
        self._tell(job_name, job_report(job))

    def _take(self, name: str, job: dict[str, Any]) -> None:
        """A job as the keeper lists it. One that has ended is told of by its own event, after its last lines."""
        if job["state"] == protocol.RUNNING:
            self._tell(name, job_report(job))
        else:
            self._reports.setdefault(name, _DRAINING)

    def _tell(self, name: str, report: JobReport) -> None:
        self._reports[name] = report
        self.host.wake(name)


_UNHEARD_OF = JobReport(state=JobState.LOST, message="the keeper of this machine knows nothing of this job")
_DRAINING = JobReport(state=JobState.UNKNOWN, message="ended; its last results are being read")


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


def _read_file(directory: Path, name: str, offset: int, limit: int) -> bytes:
    root = directory.resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root) or not path.is_file():
        raise NotFound(f"there is no file {name} in {directory.name}")
    with path.open("rb") as file:
        start = offset if offset >= 0 else max(0, path.stat().st_size + offset)
        file.seek(start)
        return file.read(limit)
