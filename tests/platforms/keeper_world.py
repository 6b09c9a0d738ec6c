"""A world with jobs that are processes of this machine: a real keeper, and commands that are led through pipes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.machines.keeper.local_process import LocalKeeper
from tests.platforms.counting_keeper import CountingKeeper
from tests.platforms.obedient_job import ObedientWorld, ended
from trial_runner import protocol


class KeeperOfTest(LocalKeeper):
    """Records all processes that it started: a keeper that finds another one running ends by itself."""

    def __init__(self, directory: Path, socket: Path) -> None:
        super().__init__(directory, socket)
        self.started: list[subprocess.Popen[bytes]] = []

    def _spawn(self, ready: int) -> subprocess.Popen[bytes]:
        process = super()._spawn(ready)
        self.started.append(process)
        return process


class KeeperWorld(ObedientWorld):
    """`directory`: of the test, for everything but the keeper's socket."""

    #: Connections to the keeper so far.
    sessions = 0

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.code = directory / "code"
        self._keeper_directory = directory / "keeper"
        self._runtime = Path(tempfile.mkdtemp(prefix="nni-"))  # paths of sockets are short
        self._process = KeeperOfTest(self._keeper_directory, self._runtime / "keeper.sock")
        self.keeper: CountingKeeper

    @property
    def keeper_pid(self) -> int | None:
        """None when none has ever run."""
        with suppress(FileNotFoundError, ValueError):
            return int((self._keeper_directory / "keeper.lock").read_text().partition("\n")[0])
        return None

    async def kill_keeper(self, number: signal.Signals) -> None:
        """Returns when it is dead; quiet when it has left by itself."""
        pid = self.keeper_pid
        assert pid is not None
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        await ended(pid)

    async def restart(self) -> None:
        await self._disconnect()
        self._connect_anew()

    # Jobs

    async def end(self, handle: JobHandle, exit_code: int) -> None:
        pid = self.pid(handle)
        self._pipes[handle.job_name].order(f"exit {exit_code}")
        await ended(pid)

    async def count(self, job_name: str) -> int:
        if not self._state_file(job_name).exists():
            return 0
        if psutil.pid_exists(self._pid(job_name)):  # it may not have come to writing that it started
            await self._pipes[job_name].tell("ping")
        return len((self.directory(job_name) / "starts").read_text().splitlines())

    def pid(self, handle: JobHandle) -> int:
        """The main process, as the keeper recorded it."""
        return self._pid(handle.job_name)

    def _pid(self, job_name: str) -> int:
        entries = map(json.loads, self._state_file(job_name).read_text().splitlines())
        return next(int(entry["pid"]) for entry in entries if "pid" in entry)

    # The platform

    @property
    def remote_calls(self) -> int:
        return self.keeper.calls

    @property
    def sessions_seen(self) -> int:
        return self.sessions

    async def start_hanging(self) -> None:
        assert self.keeper_pid is not None
        os.kill(self.keeper_pid, signal.SIGSTOP)

    async def end_hanging(self) -> None:
        """Quiet when it did not hang."""
        if self.keeper_pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.keeper_pid, signal.SIGCONT)

    async def lose_answer(self) -> None:
        self.keeper.loses_answer = True

    async def traces(self, experiment_id: str) -> Collection[str]:
        """What the keeper has on file; the rest is in the experiment's folder."""
        return [path.name for path in (self._keeper_directory / "jobs").glob(f"*_{experiment_id}_trial_*.jsonl")]

    # For worlds

    def _connect_anew(self) -> None:
        self.keeper = CountingKeeper(self._connect)
        self._run = asyncio.create_task(self.keeper.run(), name="keeper")

    async def _connect(self, make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        self.sessions += 1
        return await self._process.connect(make_protocol)

    async def _disconnect(self) -> None:
        self._run.cancel()
        with suppress(asyncio.CancelledError):
            await self._run

    async def _clean_up(self) -> None:
        """Once no keeper runs any more, or is about to end."""
        for process in self._process.started:
            await asyncio.to_thread(process.wait)
        for pipes in self._pipes.values():
            pipes.close()
        shutil.rmtree(self._runtime)

    def _state_file(self, job_name: str) -> Path:
        return self._keeper_directory / "jobs" / f"{job_name}.jsonl"


def job_spec(*, name: str, experiment_id: str, trial_id: str, sequence_id: int = 0, **fields: Any) -> JobSpec:
    """What all of them are submitted with."""
    return JobSpec(
        name=name,
        experiment_id=experiment_id,
        trial_id=trial_id,
        sequence_id=sequence_id,
        parameter_record='{"parameter_id": 0, "parameters": {"x": "ä"}}',
        protocol_environment={
            protocol.ENV_EXPERIMENT_ID: experiment_id,
            protocol.ENV_TRIAL_ID: trial_id,
            protocol.ENV_SEQUENCE_ID: str(sequence_id),
        },
        **fields,
    )
