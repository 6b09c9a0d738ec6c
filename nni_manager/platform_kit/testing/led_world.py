"""A `World` for jobs that are controlled over HTTP: each asks for its next order, and returns the answer to the last
one. Its subclass implements what the remote side can simulate."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nni_manager.code_archive import pack
from nni_manager.domain.experiment import Json, PlatformSpec
from nni_manager.domain.ids import job_name, new_experiment_id
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import led_job
from nni_manager.platform_kit.testing.listener import FakeListener
from nni_manager.platform_kit.testing.observing import insist, seen_as
from nni_manager.platform_kit.testing.orders import Orders, open_orders
from nni_manager.platform_kit.testing.recorder import Recorder
from nni_manager.platform_kit.testing.world import World, unreachable_keeper
from trial_runner import protocol

_RECORD = '{"parameter_id": 0, "parameters": {"x": 1}}'


class LedWorld(World):
    """`directory`: the test's; `section`: the training service, with its secrets; `address`: of this machine, for
    jobs."""

    #: For every job, unless the section has its own number.
    trial_gpu_number: int | None = None
    #: Seconds between a stop request and a kill.
    grace_period_s: float = 5.0
    orders: Orders

    def __init__(self, directory: Path, section: PlatformSpec, address: str = "127.0.0.1") -> None:
        super().__init__()
        self.recorder.experiment_id = new_experiment_id()
        self.recorder.folder = directory / self.recorder.experiment_id
        self.keeper = unreachable_keeper()
        self._section, self._settings = section, section.settings
        self._address = address
        self._code = directory / "code"
        self._jobs: dict[str, JobSpec] = {}
        #: All jobs that may exist.
        self._names: list[str] = []
        #: Jobs that ran.
        self._handles: dict[str, JobHandle] = {}
        #: Jobs that got the order to end.
        self._ended: set[str] = set()
        self._listeners: dict[str, FakeListener] = {}
        self._held = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._write_code()
        await self.open()
        return self

    def adopt(self, job_names: Sequence[str]) -> None:
        """Takes over jobs of an earlier world of this experiment, which end with this one."""
        self._names += job_names

    async def open(self) -> None:
        """Opens what the adapter and trials need here; it is closed with the world."""
        self.orders = await self._held.enter_async_context(open_orders(self._address, 0, self.patience_s))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """Removes everything from the service, and checks that nothing is left."""
        try:
            await self.remove_all()
        finally:
            await self.leave()

    async def remove_all(self) -> None:
        """Removes all jobs. Some services keep records of ended jobs."""
        await insist(self, lambda: self.make().clean(self._names))
        if self._handles:
            async with self.make() as platform:
                for handle in self._handles.values():
                    await seen_as(self, platform, handle, lambda report: report.state.is_final, "ended or removed")

    async def leave(self) -> None:
        """Closes what was opened here; jobs are not changed."""
        await self._held.aclose()
        for listener in self._listeners.values():
            listener.close()

    # The adapter

    def make(self) -> Platform[Any]:
        return self.made(self.recorder, self._settings)

    def made(self, recorder: Recorder, settings: Json) -> Platform[Any]:
        """An adapter of the section's platform."""
        host = dataclasses.replace(recorder.host(self.keeper), service=self._section.service)
        config = registry.config_of(dataclasses.replace(self._section, settings=settings))
        return registry.adapter_of(self._section)(config, host)

    async def restart(self) -> None:
        self.recorder.connections = Connections()

    def state_of(self, native: str) -> JobState:
        raise NotImplementedError

    # Jobs

    def job(self, trial_id: str) -> JobSpec:
        return self.job_of(self.recorder, trial_id)

    def job_of(self, recorder: Recorder, trial_id: str) -> JobSpec:
        name = job_name(recorder.experiment_id, trial_id, 1)
        if name not in self._jobs:
            self._names.append(name)
            self._jobs[name] = self._made(recorder, name, trial_id)
        return self._jobs[name]

    def _made(self, recorder: Recorder, name: str, trial_id: str) -> JobSpec:
        gpus = self._section.settings.get("trialGpuNumber", self.trial_gpu_number)
        return JobSpec(
            name=name,
            experiment_id=recorder.experiment_id,
            trial_id=trial_id,
            attempt=1,
            sequence_id=0,
            command=self.orders.command(name),
            parameter_record=_RECORD,
            protocol_environment={
                protocol.ENV_EXPERIMENT_ID: recorder.experiment_id,
                protocol.ENV_TRIAL_ID: trial_id,
                protocol.ENV_SEQUENCE_ID: "0",
            },
            caller_environment={"PATH": os.environ["PATH"]},
            code_directory=str(self._code),
            attempt_directory=str(recorder.folder / "trials" / trial_id),
            gpu_number=gpus if isinstance(gpus, int) else None,
            grace_period_s=self.grace_period_s,
            runner_environment=self._way(name),
        )

    def _way(self, name: str) -> Mapping[str, str]:
        """The route to a trial listener for this job."""
        if not self.make().capabilities.has_runner:
            return {}
        listener = self._listeners[name] = FakeListener(self._address)
        listener.heartbeat_s, listener.keeps_alive = 1.0, False
        listener.parameters = json.loads(_RECORD)
        listener.code = self.recorder.code_archive.read_bytes()
        return listener.variables()

    async def begin(self, handle: JobHandle) -> None:
        """Waits for the start, which only the service controls."""
        self._handles[handle.job_name] = handle
        await self.orders.tell(handle.job_name, "ping")

    async def end(self, handle: JobHandle, exit_code: int) -> None:
        self._ended.add(handle.job_name)
        await self.orders.tell(handle.job_name, f"exit {exit_code}")

    async def count(self, job_name: str) -> int:
        if job_name not in self._ended:
            await self.orders.tell(job_name, "ping")
        return await self.orders.starts(job_name)

    async def environment(self, handle: JobHandle) -> Mapping[str, str]:
        found: dict[str, str] = await self.orders.tell(handle.job_name, "environment")
        return found

    async def code_file(self, handle: JobHandle, name: str) -> str:
        return str(await self.orders.tell(handle.job_name, f"show {name}"))

    async def parameter_record(self, handle: JobHandle) -> str:
        folder = (await self.environment(handle))[protocol.ENV_SYSTEM_DIR]
        return str(await self.orders.tell(handle.job_name, f"show {folder}/{protocol.PARAMETER_FILE}"))

    async def write_log(self, handle: JobHandle, line: str) -> None:
        await self.orders.tell(handle.job_name, f"print {line}")

    async def report(self, handle: JobHandle, line: str) -> None:
        await self.orders.tell(handle.job_name, f"report {line}")

    async def arrived(self, handle: JobHandle, count: int, recorder: Recorder) -> list[str]:
        listener = self._listeners.get(handle.job_name)
        if listener is None:
            return await super().arrived(handle, count, recorder)
        lines = listener.lines.setdefault(protocol.MAIN_OUTBOX, [])
        await asyncio.to_thread(listener.wait_for, lambda: len(lines) >= count)
        return lines

    @property
    def remote_calls(self) -> int:
        raise NotImplementedError

    def _write_code(self) -> None:
        self._code.mkdir()
        shutil.copy(Path(led_job.__file__), self._code)
        for name, text in self.code_files.items():
            (self._code / name).write_text(text)
        (self.recorder.folder / "code").mkdir(parents=True, exist_ok=True)
        self.recorder.code_archive = pack(self._code, self.recorder.folder / "code").path
