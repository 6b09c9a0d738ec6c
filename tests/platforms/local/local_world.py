"""This machine as a `World`: a real keeper, real processes that do what they are told through a pipe."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.machines.keeper.job_events import job_report
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import Feature, Recorder
from nni_manager.platforms.local.config import LocalConfig
from nni_manager.platforms.local.platform import LocalPlatform
from tests.platforms.keeper_world import KeeperWorld, job_spec
from tests.platforms.obedient_job import PATIENCE_S, ended
from trial_runner import protocol

_SECRET = "s3cr3t-of-the-caller"


class LocalWorld(KeeperWorld):
    absent: ClassVar[Mapping[Feature, str]] = {
        Feature.STORAGE: "the keeper reads results where they are written",
        Feature.CREDENTIALS: "local has no credentials",
        Feature.PENDING: "local starts a job at once",
        Feature.PUSH: "the keeper ships what local jobs report",
        Feature.MACHINES: "local is one machine",
        Feature.HOPELESS_WAITS: "local starts every job that it accepts",
        Feature.TIME_LIMIT: "local has no time limit",
        Feature.ENDING_NOTICE: "a keeper announces nothing",
        Feature.SECOND_RUN: "a keeper runs each job once",
        Feature.OVERLOOKED: "a keeper lists every job that it has",
        Feature.QUEUE: "local has no queue",
        Feature.ROOM: "local takes as many jobs as trialConcurrency allows",
        Feature.WAIT_REASONS: "local starts a job at once",
        Feature.REPLICAS: "a local job is one process",
        Feature.PORTAL: "local jobs are ended by the manager alone",
        Feature.FOREIGN_JOBS: "a keeper's jobs are those of one data directory, and their names hold the experiment",
        Feature.PACE: "the keeper of this machine may be asked as often as one likes",
    }
    native_states = re.findall("[A-Z]+", re.findall(r"`state` is one of ([A-Z, ]+)", protocol.__doc__ or "")[0])

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.secrets = (_SECRET,)
        self.trials = directory / "trials"
        self._specs: dict[str, JobSpec] = {}
        self._transport: asyncio.Transport | None = None
        self._is_out = False

    async def __aenter__(self) -> Self:
        self._write_code()
        self.trials.mkdir()
        self._connect_anew()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._is_out = False
        await self.end_hanging()
        if self.keeper_pid is not None:
            await self._end_jobs()
        await self._disconnect()
        if self.keeper_pid is not None:
            await self.kill_keeper(signal.SIGTERM)
        await self._clean_up()

    # The adapter

    def make(self) -> Platform[Any]:
        return LocalPlatform(LocalConfig(), self.recorder.host(self.keeper))

    def make_of(self, recorder: Recorder) -> Platform[Any]:
        return LocalPlatform(LocalConfig(), recorder.host(self.keeper))

    def state_of(self, native: str) -> JobState:
        return job_report({"state": native, "exit_code": 0}).state

    # Jobs

    def command(self, trial_id: str, command: str, *, recorder: Recorder | None = None, **changes: Any) -> JobSpec:
        experiment_id = (recorder or self.recorder).experiment_id
        name = job_name(experiment_id, trial_id, 1)
        if name not in self._specs:
            self._specs[name] = replace(self._spec(name, experiment_id, trial_id, command), **changes)
        return self._specs[name]

    async def vanish(self, handle: JobHandle) -> None:
        await self.start_outage()
        pid = self.pid(handle)
        await self.kill_keeper(signal.SIGKILL)
        os.killpg(pid, signal.SIGKILL)
        await ended(pid)
        self._state_file(handle.job_name).unlink()
        shutil.rmtree(handle.data)
        await self.end_outage()

    def directory(self, job_name: str) -> Path:
        return Path(self._specs[job_name].attempt_directory)

    # The platform

    async def start_outage(self) -> None:
        self._is_out = True
        if self._transport is not None:
            self._transport.abort()

    async def end_outage(self) -> None:
        self._is_out = False

    async def _connect(self, make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        if self._is_out:
            raise ConnectionRefusedError("there is an outage")
        self._transport = await super()._connect(make_protocol)
        return self._transport

    async def _end_jobs(self) -> None:
        await self.keeper.listen("the end", _Nobody())
        async with asyncio.timeout(PATIENCE_S):
            while running := await self._running_jobs():
                for name in running:
                    with suppress(PlatformUnavailable):
                        await self.keeper.request("signal", name=name, grace_s=0)
                await asyncio.sleep(0.01)
        self.keeper.leave("the end")

    async def _running_jobs(self) -> list[str]:
        try:
            jobs = (await self.keeper.request("list"))["jobs"]
        except PlatformUnavailable:
            return list(self._specs)
        return [name for name, job in jobs.items() if job["state"] == protocol.RUNNING]

    def _spec(self, name: str, experiment_id: str, trial_id: str, command: str) -> JobSpec:
        return job_spec(
            name=name,
            experiment_id=experiment_id,
            trial_id=trial_id,
            attempt=1,
            command=command,
            caller_environment={"PATH": os.environ["PATH"], "API_KEY": _SECRET},
            code_directory=str(self.code),
            attempt_directory=str(self.trials / experiment_id / trial_id),
        )


class _Nobody:
    """Keeps a connection needed."""

    async def on_connected(self) -> None:
        pass

    async def on_lines(self, job_name: str, outbox: str, start: int, end: int, lines: list[str]) -> None:
        pass

    def on_ended(self, job_name: str, job: dict[str, Any]) -> None:
        pass

    def on_disconnected(self) -> None:
        pass
