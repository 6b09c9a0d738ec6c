"""This machine as a `World`: a real keeper, real processes that do what they are told through a pipe."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.keeper_process import LocalKeeper
from nni_manager.platform_kit.testing import Feature, World
from nni_manager.platforms.local.platform import LocalPlatform
from nni_manager.platforms.local.states import job_report
from tests.platforms.counting_keeper import CountingKeeper
from tests.platforms.obedient_job import PATIENCE_S, SCRIPT, Pipes, ended
from trial_runner import protocol

_SECRET = "s3cr3t-of-the-caller"


class LocalWorld(World):
    absent: ClassVar[Mapping[Feature, str]] = {
        Feature.CREDENTIALS: "local has no credentials",
        Feature.PENDING: "local starts a job at once",
    }
    native_states = re.findall("[A-Z]+", re.findall(r"`state` is one of ([A-Z, ]+)", protocol.__doc__ or "")[0])

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.secrets = (_SECRET,)
        self.code = directory / "code"
        self.trials = directory / "trials"
        self._keeper_directory = directory / "keeper"
        # Paths of sockets are short.
        self._runtime = Path(tempfile.mkdtemp(prefix="nni-"))
        self._process = LocalKeeper(self._keeper_directory, self._runtime / "keeper.sock")
        self._specs: dict[str, JobSpec] = {}
        self._pipes: dict[str, Pipes] = {}
        self._transport: asyncio.Transport | None = None
        self._is_out = False
        self.keeper: CountingKeeper

    async def __aenter__(self) -> Self:
        self.code.mkdir()
        self.trials.mkdir()
        (self.code / "job.sh").write_text(SCRIPT)
        for name, text in self.code_files.items():
            (self.code / name).write_text(text)
        self._connect_anew()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._is_out = False
        if self.keeper_pid is not None:
            await self._end_jobs()
        await self._disconnect()
        if self.keeper_pid is not None:
            await self.kill_keeper(signal.SIGTERM)
        if self._process._process is not None:
            await asyncio.to_thread(self._process._process.wait)
        for pipes in self._pipes.values():
            pipes.close()
        shutil.rmtree(self._runtime)

    # The adapter

    def make(self) -> Platform:
        return LocalPlatform({}, self.recorder.host(self.keeper))

    def state_of(self, native: str) -> JobState:
        return job_report({"state": native, "exit_code": 0}).state

    async def restart(self) -> None:
        await self._disconnect()
        self._connect_anew()

    # Jobs

    def job(self, trial_id: str) -> JobSpec:
        spec = self.command(trial_id, "exec /bin/sh job.sh")
        if spec.name not in self._pipes:
            self._pipes[spec.name] = Pipes(Path(spec.attempt_directory))
        return spec

    def command(self, trial_id: str, command: str, **changes: Any) -> JobSpec:
        """A job that runs a command of its own; the same one every time for the same trial."""
        name = job_name(self.recorder.experiment_id, trial_id, 1)
        if name not in self._specs:
            self._specs[name] = replace(self._spec(name, trial_id, command), **changes)
        return self._specs[name]

    async def tell(self, handle: JobHandle, order: str) -> None:
        """Has the obedient job do something; returns when it is done."""
        await self._pipes[handle.job_name].tell(order)

    async def end(self, handle: JobHandle, exit_code: int) -> None:
        pid = self.pid(handle)
        self._pipes[handle.job_name].order(f"exit {exit_code}")
        await ended(pid)

    async def vanish(self, handle: JobHandle) -> None:
        await self.start_outage()
        pid = self.pid(handle)
        await self.kill_keeper(signal.SIGKILL)
        os.killpg(pid, signal.SIGKILL)
        await ended(pid)
        self._state_file(handle).unlink()
        shutil.rmtree(handle.data)
        await self.end_outage()

    async def count(self, job_name: str) -> int:
        await self._pipes[job_name].tell("ping")
        return len(_lines(Path(self._specs[job_name].attempt_directory, "starts")))

    async def environment(self, handle: JobHandle) -> Mapping[str, str]:
        await self.tell(handle, "environment")
        entries = self._shown(handle).rstrip("\0").split("\0")
        return dict(entry.split("=", 1) for entry in entries)

    async def code_file(self, handle: JobHandle, name: str) -> str:
        await self.tell(handle, f"show {name}")  # relative to where it runs
        return self._shown(handle)

    async def parameter_record(self, handle: JobHandle) -> str:
        environment = await self.environment(handle)
        await self.tell(handle, f"show {environment[protocol.ENV_SYSTEM_DIR]}/{protocol.PARAMETER_FILE}")
        return self._shown(handle)

    async def write_log(self, handle: JobHandle, line: str) -> None:
        await self.tell(handle, f"print {line}")

    def pid(self, handle: JobHandle) -> int:
        """The main process, as the keeper recorded it."""
        entries = map(json.loads, self._state_file(handle).read_text().splitlines())
        return next(int(entry["pid"]) for entry in entries if "pid" in entry)

    # The platform

    @property
    def remote_calls(self) -> int:
        return self.keeper.calls

    async def start_outage(self) -> None:
        self._is_out = True
        if self._transport is not None:
            self._transport.abort()

    async def end_outage(self) -> None:
        self._is_out = False

    @property
    def keeper_pid(self) -> int | None:
        """None when none has ever run."""
        try:
            text = (self._keeper_directory / "keeper.lock").read_text()
        except FileNotFoundError:
            return None
        return int(text.split()[0]) if text else None

    async def kill_keeper(self, number: signal.Signals) -> None:
        """Returns when it is dead; quiet when it has left by itself."""
        pid = self.keeper_pid
        assert pid is not None
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        await ended(pid)

    async def _connect(self, make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        if self._is_out:
            raise ConnectionRefusedError("there is an outage")
        self._transport = await self._process.connect(make_protocol)
        return self._transport

    def _connect_anew(self) -> None:
        self.keeper = CountingKeeper(self._connect)
        self._run = asyncio.create_task(self.keeper.run(), name="keeper")

    async def _disconnect(self) -> None:
        self._run.cancel()
        with suppress(asyncio.CancelledError):
            await self._run

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

    def _spec(self, name: str, trial_id: str, command: str) -> JobSpec:
        experiment_id = self.recorder.experiment_id
        return JobSpec(
            name=name,
            experiment_id=experiment_id,
            trial_id=trial_id,
            attempt=1,
            sequence_id=0,
            command=command,
            parameter_record='{"parameter_id": 0, "parameters": {"x": "ä"}}',
            protocol_environment={
                protocol.ENV_EXPERIMENT_ID: experiment_id,
                protocol.ENV_TRIAL_ID: trial_id,
                protocol.ENV_SEQUENCE_ID: "0",
            },
            caller_environment={"PATH": os.environ["PATH"], "API_KEY": _SECRET},
            code_directory=str(self.code),
            attempt_directory=str(self.trials / trial_id),
        )

    def _state_file(self, handle: JobHandle) -> Path:
        return self._keeper_directory / "jobs" / f"{handle.job_name}.jsonl"

    def _shown(self, handle: JobHandle) -> str:
        return Path(handle.data, "shown").read_text()


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


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
