"""A real service as a `World`, made of an experiment's config: trials on it are led over HTTP, nothing is played."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nni_manager.code_archive import pack
from nni_manager.config import credentials
from nni_manager.config.experiment_file import ParsedConfig, read_file
from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import Json, PlatformSpec
from nni_manager.domain.ids import job_name, new_experiment_id
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.machines.keeper.client import Keeper
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import Feature, Recorder, World, unreachable_keeper
from nni_manager.platform_kit.testing.listener import FakeListener
from nni_manager.platform_kit.testing.observing import insist, seen_as
from tests.platforms.keeper_world import KeeperOfTest
from tests.platforms.live.orders import Orders, open_orders
from tests.platforms.role_commands import without_commands
from trial_runner import protocol

_RECORD = '{"parameter_id": 0, "parameters": {"x": 1}}'
_UNPLAYED = "a test cannot do this to a real service"
_UNSEEN = "a real service does not tell"
_UNASKED = "the config says nothing of it; the adapter's own tests have it"
_ABSENT = {
    **dict.fromkeys((Feature.OUTAGE, Feature.VANISH, Feature.HANG, Feature.LOST_ANSWERS), _UNPLAYED),
    **dict.fromkeys((Feature.ROOM, Feature.FOREIGN_JOBS, Feature.PORTAL, Feature.PENDING), _UNPLAYED),
    **dict.fromkeys((Feature.CALLS, Feature.TRACES, Feature.PACE, Feature.SHARED_CONNECTION), _UNSEEN),
    **dict.fromkeys((Feature.STATES, Feature.WAIT_REASONS, Feature.STORAGE, Feature.PUSH), _UNASKED),
    **dict.fromkeys((Feature.CREDENTIALS, Feature.MACHINES, Feature.REPLICAS), _UNASKED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What the command line says of it."""

    #: The training service, as the config's section has it.
    name: str
    config: Path
    #: How trials reach this machine.
    address: str
    patience_s: float
    without: frozenset[Feature]
    #: Where is noted what was submitted, to be removed again whatever becomes of the test; None: nowhere.
    ledger: Path | None = None


class LiveWorld(World):
    """`directory`: of the test."""

    def __init__(self, directory: Path, service: Service) -> None:
        super().__init__()
        self.absent = {**_ABSENT, **dict.fromkeys(service.without, "left out on the command line")}  # type: ignore[misc]
        self.patience_s = service.patience_s  # type: ignore[misc]
        self.recorder.experiment_id = new_experiment_id()
        self.recorder.folder = directory / self.recorder.experiment_id
        self._service = service
        reading = read_file(service.config, environment=os.environ)
        self._spec, self._section = reading.spec, _section(reading, service)
        self._settings = credentials.filled(self._section, reading.secrets)
        self.secrets = (*reading.secrets.values(), "the-token-of-this-attempt")
        self._code = directory / "code"
        self._directory = directory
        self._jobs: dict[str, JobSpec] = {}
        #: Of all jobs that may be there.
        self._names: list[str] = []
        #: Of jobs that ran.
        self._handles: dict[str, JobHandle] = {}
        #: Jobs that were told to end.
        self._ended: set[str] = set()
        self._listeners: dict[str, FakeListener] = {}
        self._held = AsyncExitStack()
        self.keeper = unreachable_keeper()
        self.orders: Orders

    async def __aenter__(self) -> Self:
        self._write_code()
        await self.open()
        return self

    def adopt(self, job_names: Sequence[str]) -> None:
        """Takes jobs of an earlier world of this experiment over, which end with this one."""
        self._names += job_names

    async def open(self) -> None:
        """What the adapter and trials need here; ended with the world."""
        await self._held.enter_async_context(self._kept())
        opening = open_orders(self._service.address, 0, self.patience_s)
        self.orders = await self._held.enter_async_context(opening)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """Nothing stays on the service: all is removed, and then looked for."""
        try:
            await self.remove_all()
        finally:
            await self._leave_here()

    async def remove_all(self) -> None:
        """Some services keep a record of jobs that have ended."""
        await insist(self, lambda: self.make().clean(self._names))
        if self._handles:
            async with self.make() as platform:
                for handle in self._handles.values():
                    await seen_as(self, platform, handle, lambda report: report.state.is_final, "ended or removed")

    async def _leave_here(self) -> None:
        await self._held.aclose()
        for listener in self._listeners.values():
            listener.close()

    @asynccontextmanager
    async def _kept(self) -> AsyncIterator[None]:
        """With a keeper on this machine, for adapters with jobs that run here."""
        with tempfile.TemporaryDirectory(prefix="nni-") as runtime:  # paths of sockets are short
            process = KeeperOfTest(self._directory / "keeper", Path(runtime) / "keeper.sock")
            self.keeper = Keeper(process.connect)
            run = asyncio.create_task(self.keeper.run(), name="keeper")
            try:
                yield
            finally:
                run.cancel()
                await asyncio.wait([run])
                await _ended(process)

    # The adapter

    def make(self) -> Platform[Any]:
        return self.made(self.recorder, self._settings)

    def made(self, recorder: Recorder, settings: Json) -> Platform[Any]:
        """An adapter of the section's platform."""
        host = dataclasses.replace(recorder.host(self.keeper), service=self._section.service)
        config = registry.config_of(dataclasses.replace(self._section, settings=settings))
        return registry.adapter_of(self._section)(without_commands(config), host)

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
            self._note(recorder, name)
            self._jobs[name] = self._made(recorder, name, trial_id)
        return self._jobs[name]

    def _note(self, recorder: Recorder, name: str) -> None:
        """Before it is submitted: what is noted is removed also after an end in the middle."""
        self._names.append(name)
        if self._service.ledger is not None:
            with self._service.ledger.open("a") as ledger:
                ledger.write(json.dumps([recorder.experiment_id, str(recorder.folder), name]) + "\n")

    def _made(self, recorder: Recorder, name: str, trial_id: str) -> JobSpec:
        gpus = self._section.settings.get("trialGpuNumber", self._spec.trial_gpu_number)
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
            grace_period_s=self._spec.grace_period_s,
            runner_environment=self._way(name),
        )

    def _way(self, name: str) -> Mapping[str, str]:
        """To a trial listener of this job's own."""
        if not self.make().capabilities.has_runner:
            return {}
        listener = self._listeners[name] = FakeListener(self._service.address)
        listener.heartbeat_s, listener.keeps_alive = 1.0, False
        listener.parameters = json.loads(_RECORD)
        listener.code = self.recorder.code_archive.read_bytes()
        return listener.variables()

    async def begin(self, handle: JobHandle) -> None:
        """Waits for the start: the service alone decides when."""
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
        shutil.copy(Path(__file__).with_name("led_job.py"), self._code)
        for name, text in self.code_files.items():
            (self._code / name).write_text(text)
        (self.recorder.folder / "code").mkdir(parents=True, exist_ok=True)
        self.recorder.code_archive = pack(self._code, self.recorder.folder / "code").path


async def _ended(keeper: KeeperOfTest) -> None:
    for process in keeper.started:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        await asyncio.to_thread(process.wait)


def _section(reading: ParsedConfig, service: Service) -> PlatformSpec:
    found = [section for section in reading.spec.platforms if service.name in (section.service, section.name)]
    if not found:
        raise NniManagerError(f"{service.config} has no training service {service.name}")
    return found[0]
