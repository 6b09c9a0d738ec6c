"""Runs trials on this machine, in the user's own code directory, through the keeper that outlives the daemon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nni_manager.domain.errors import InvalidInput, NniManagerError, PlatformUnavailable
from nni_manager.domain.experiment import ExperimentSpec, Json, PlatformSpec
from nni_manager.domain.job import JobHandle, JobReport, JobSpec, JobState
from nni_manager.platform_kit import abandoned_jobs
from nni_manager.platform_kit.attempt_file import read_stretch
from nni_manager.platform_kit.contract import Capabilities, Host, Platform
from nni_manager.platform_kit.payload import directory_environment, with_stand_in
from nni_manager.platforms.local.states import job_report
from trial_runner import protocol

log = logging.getLogger(__name__)


class LocalPlatform(Platform):
    """The keeper tells of every change; `observe` answers from what it told, and asks it about jobs it has not named.

    The end of a job is observed when all its results are stored.
    """

    capabilities = Capabilities(watches=True, reads_files=True)

    def __init__(self, settings: Json, host: Host) -> None:
        super().__init__(settings, host)
        #: What this connection to the keeper told of each job.
        self._reports: dict[str, JobReport] = {}
        self._is_connected = False
        self._is_entered = False
        #: Two at a time would have the keeper send the same results twice.
        self._following = asyncio.Lock()
        #: By job: results handed over and not stored yet, and the end that waits for them.
        self._deliveries: dict[str, set[asyncio.Task[None]]] = {}
        self._held_ends: dict[str, JobReport] = {}

    @classmethod
    def check(cls, spec: ExperimentSpec, service: PlatformSpec) -> None:
        if service.settings.get("trialGpuNumber", spec.trial_gpu_number):
            raise InvalidInput(
                "trialGpuNumber: this version gives no GPUs to trials on `local`; leave it out, or set it to 0"
            )

    async def __aenter__(self) -> Self:
        await self.host.keeper.listen(self.host.experiment_id, self)
        self._is_entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self.host.keeper.leave(self.host.experiment_id)
        self._forget_told()
        # What is not stored by now, the keeper sends again to whoever enters next.
        deliveries = self._pending_deliveries()
        for delivery in deliveries:
            delivery.cancel()
        await asyncio.gather(*deliveries, return_exceptions=True)

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
            **{"from": dict(spec.stored)},
        )
        if job["state"] == protocol.RUNNING:  # of one that has ended, `observe` asks for what it reported
            self._note_running(spec.name, job)
        return JobHandle(platform="local", version=1, job_name=spec.name, data=spec.attempt_directory)

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, JobReport]:
        if not self._is_connected:
            raise PlatformUnavailable(f"the keeper of this machine is away: {self.host.keeper.trouble or 'connecting'}")
        names = [handle.job_name for handle in handles]
        if any(name not in self._reports for name in names):
            await self._follow(names)
        return {handle: self._reports.get(handle.job_name, _NO_WORD) for handle in handles}

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        for handle in handles:
            await self.host.keeper.request("signal", name=handle.job_name, grace_s=grace_period_s)

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        names = [handle.job_name for handle in handles]
        await self.host.keeper.request("forget", names=names)
        for name in names:
            self._reports.pop(name, None)

    async def clean(self, job_names: Sequence[str]) -> None:
        if not self._is_entered:
            return await abandoned_jobs.end(self.host.keeper, self.host.experiment_id, forget=True)
        for name in job_names:
            await self.host.keeper.request("signal", name=name, grace_s=0)

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        return await asyncio.to_thread(read_stretch, Path(handle.data), name, offset, limit)

    # What the keeper tells

    async def on_connected(self) -> None:
        self._is_connected = True
        try:
            await self._follow(())
        except NniManagerError as error:
            log.warning("the keeper's jobs cannot be followed yet: %s", error)
        self.host.wake("")

    def on_disconnected(self) -> None:
        self._forget_told()
        self.host.wake("")

    def on_lines(self, job_name: str, outbox: str, start: int, end: int, lines: list[str]) -> asyncio.Task[None]:
        delivery = asyncio.create_task(
            self._deliver(job_name, outbox, start, end, lines), name=f"results of {job_name}"
        )
        self._deliveries.setdefault(job_name, set()).add(delivery)
        delivery.add_done_callback(lambda done: self._on_delivered(job_name, done))
        return delivery

    def on_ended(self, job_name: str, job: dict[str, Any]) -> None:
        if job_name in self._deliveries:
            self._held_ends[job_name] = job_report(job)
        else:
            self._tell(job_name, job_report(job))

    async def _deliver(self, job_name: str, outbox: str, start: int, end: int, lines: list[str]) -> None:
        """Raises when a stretch before these lines is missing: the next connection follows from what is stored."""
        ended = self._held_ends.get(job_name) if len(self._deliveries[job_name]) == 1 else None
        delivery = await self.host.deliver(job_name, outbox, start, end, lines, ended)
        if delivery.resend:
            raise PlatformUnavailable(f"job {job_name}: what {outbox} holds before byte {start} is not stored")
        if ended is not None and self._held_ends.pop(job_name, None) is not None:
            self._reports[job_name] = ended  # told with the lines

    def _on_delivered(self, job_name: str, delivery: asyncio.Task[None]) -> None:
        pending = self._deliveries[job_name]
        pending.discard(delivery)
        if not pending:
            del self._deliveries[job_name]
        if delivery.cancelled() or delivery.exception() is not None:
            self._held_ends.pop(job_name, None)
        elif not pending and job_name in self._held_ends:
            self._tell(job_name, self._held_ends.pop(job_name))

    async def _follow(self, names: Sequence[str]) -> None:
        """Asks for these and all undecided jobs that the keeper has not named on this connection."""
        async with self._following:
            await _settled(self._pending_deliveries())  # they move the offsets that are read now
            followed = await self.host.followed(names)
            unheard = {name: dict(offsets) for name, offsets in followed.items() if name not in self._reports}
            if unheard:
                self._note_all(await self.host.keeper.request("follow", jobs=unheard))

    def _note_all(self, answer: dict[str, Any]) -> None:
        for name, job in answer["jobs"].items():
            if job["state"] == protocol.RUNNING:
                self._note_running(name, job)
            else:  # its end is told after its last lines
                self._reports.setdefault(name, _DRAINING)
        for name in answer["unknown"]:
            self._tell(name, _UNHEARD_OF)

    def _note_running(self, name: str, job: dict[str, Any]) -> None:
        """Its end may have come in the moment between the keeper's answer and now."""
        known = self._reports.get(name, _UNHEARD_OF)
        if known is _UNHEARD_OF or not known.state.is_final:
            self._tell(name, job_report(job))

    def _tell(self, name: str, report: JobReport) -> None:
        self._reports[name] = report
        self.host.wake(name)

    def _forget_told(self) -> None:
        """The next connection begins with nothing: what this one does not hear, it must ask about."""
        self._is_connected = False
        self._reports.clear()
        self._held_ends.clear()

    def _pending_deliveries(self) -> set[asyncio.Task[None]]:
        return set().union(*self._deliveries.values())


_UNHEARD_OF = JobReport(state=JobState.LOST, message="the keeper of this machine knows nothing of this job")
_NO_WORD = JobReport(state=JobState.UNKNOWN, message="the connection to the keeper of this machine broke")
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


async def _settled(tasks: set[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)
