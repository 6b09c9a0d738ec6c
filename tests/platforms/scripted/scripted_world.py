"""The scripted cluster as a `World`: a real keeper, real runners whose results are read, commands led through pipes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from nni_manager.domain.clock import now_ms
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.archive import pack
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.keeper_process import LocalKeeper
from nni_manager.platform_kit.testing import World
from nni_manager.platforms.scripted import states
from nni_manager.platforms.scripted.platform import ScriptedPlatform
from tests.platforms.counting_keeper import CountingKeeper
from tests.platforms.obedient_job import PATIENCE_S, SCRIPT, Pipes, ended
from trial_runner import protocol

SECRET = "t0ken-of-the-runner"
FAR_S = 1_000_000
#: No wrapper of an interpreter, which would add variables of its own.
_PATH = f"{Path(os.path.realpath(sys.executable)).parent}:/usr/bin:/bin"
_TABLE = re.findall(r"^(\w+) +[A-Z]+  ", states.__doc__ or "", re.MULTILINE)


class ScriptedWorld(World):
    native_states = _TABLE
    max_observe_calls = 2

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.secrets = (SECRET,)
        self.code = directory / "code"
        self.folder = self.recorder.folder = directory / "experiment"
        self.storage = directory / "mounted"
        self._keeper_directory = directory / "keeper"
        self._runtime = Path(tempfile.mkdtemp(prefix="nni-"))  # paths of sockets are short
        self._process = LocalKeeper(self._keeper_directory, self._runtime / "keeper.sock")
        self._pipes: dict[str, Pipes] = {}
        self.keeper: CountingKeeper

    async def __aenter__(self) -> Self:
        self.code.mkdir()
        (self.folder / "code").mkdir(parents=True)
        (self.code / "job.sh").write_text(SCRIPT)
        for name, text in self.code_files.items():
            (self.code / name).write_text(text)
        self.recorder.code_archive = pack(self.code, self.folder / "code").path
        self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        pid = self.keeper_pid
        if pid is not None:
            for process in psutil.Process(pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        await self._disconnect()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        if self._process._process is not None:
            await asyncio.to_thread(self._process._process.wait)
        for pipes in self._pipes.values():
            pipes.close()
        shutil.rmtree(self._runtime)

    @property
    def keeper_pid(self) -> int | None:
        with suppress(FileNotFoundError, ValueError):
            return int((self._keeper_directory / "keeper.lock").read_text().partition("\n")[0])
        return None

    # The adapter

    def make(self, **settings: Any) -> ScriptedPlatform:
        """With settings of its own, or with those that the world's other methods expect."""
        default = {
            "launch": "process", "channel": "pull", "storage": str(self.storage),
            "trials": [{"delay": FAR_S}], "outage": {"after": FAR_S, "for": FAR_S},
        }  # fmt: skip
        return ScriptedPlatform({"platform": "scripted", **(settings or default)}, self.recorder.host(self.keeper))

    def make_unauthorised(self) -> Platform:
        return self.make(launch="none", wrongCredentials={})

    def state_of(self, native: str) -> JobState:
        return states.job_state(native)

    async def restart(self) -> None:
        await self._disconnect()
        self._connect()

    # Jobs

    def job(self, trial_id: str) -> JobSpec:
        spec = self.command(trial_id, "exec /bin/sh job.sh")
        if spec.name not in self._pipes:
            self._pipes[spec.name] = Pipes(self.directory(spec.name))
        return spec

    def command(self, trial_id: str, command: str, sequence_id: int = 0, attempt: int = 1) -> JobSpec:
        experiment_id = self.recorder.experiment_id
        attempt_id = trial_id if attempt == 1 else f"{trial_id}-{attempt}"
        return JobSpec(
            name=job_name(experiment_id, trial_id, attempt), experiment_id=experiment_id, trial_id=trial_id,
            attempt=attempt, sequence_id=sequence_id, command=command,
            parameter_record='{"parameter_id": 0, "parameters": {"x": "ä"}}',
            protocol_environment={
                protocol.ENV_EXPERIMENT_ID: experiment_id, protocol.ENV_TRIAL_ID: trial_id,
                protocol.ENV_SEQUENCE_ID: str(sequence_id),
            },
            caller_environment={"PATH": _PATH, "HOME": "/nowhere", "API_KEY": "of-the-caller"},
            code_directory=str(self.code), attempt_directory=str(self.folder / "trials" / attempt_id),
            runner_environment={protocol.ENV_TOKEN: SECRET, protocol.ENV_MANAGER_URL: "http://127.0.0.1:9/none"},
        )  # fmt: skip

    def directory(self, name: str) -> Path:
        """Where the runner of a job works, on the shared storage."""
        return self.storage / self.recorder.experiment_id / name.rpartition("_")[2]

    async def begin(self, handle: JobHandle) -> None:
        """Its delay is over: on file, and for the shell that sleeps."""
        path = self.folder / "scripted" / handle.job_name / "job.json"
        entry = json.loads(path.read_text())
        entry["rule"]["delay"] = 0.0
        path.write_text(json.dumps(entry))
        shell = psutil.Process(await self.pid(handle))
        async with asyncio.timeout(PATIENCE_S):
            while not (sleeping := shell.children()):  # noqa: ASYNC110 (nothing tells when a shell begins a command)
                await asyncio.sleep(0.005)
        sleeping[0].kill()
        (self.directory(handle.job_name) / protocol.STDOUT_FILE).touch()  # as its runner does a moment later

    async def end(self, handle: JobHandle, exit_code: int) -> None:
        pid = await self.pid(handle)
        self._pipes[handle.job_name].order(f"exit {exit_code}")
        await ended(pid)

    async def vanish(self, handle: JobHandle) -> None:
        pid = await self.pid(handle)
        shutil.rmtree(self.folder / "scripted" / handle.job_name)
        os.killpg(pid, signal.SIGKILL)
        await ended(pid)

    async def count(self, job_name: str) -> int:
        await self._pipes[job_name].tell("ping")
        return len((self.directory(job_name) / "starts").read_text().splitlines())

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

    async def tell(self, handle: JobHandle, order: str) -> None:
        """Has the obedient job do something; returns when it is done."""
        await self._pipes[handle.job_name].tell(order)

    async def pid(self, handle: JobHandle) -> int:
        """The shell that becomes the runner, as the keeper recorded it."""
        path = self._keeper_directory / "jobs" / f"{handle.job_name}.jsonl"
        entries = map(json.loads, (await asyncio.to_thread(path.read_text)).splitlines())
        return next(int(entry["pid"]) for entry in entries if "pid" in entry)

    # The platform

    @property
    def remote_calls(self) -> int:
        return self.keeper.calls

    async def start_outage(self) -> None:
        self._set_begun(now_ms() - FAR_S * 1000)

    async def end_outage(self) -> None:
        self._set_begun(now_ms())

    def _set_begun(self, moment_ms: int) -> None:
        path = self.folder / "scripted" / "cluster.json"
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({"begunMs": moment_ms}))
        draft.replace(path)

    def _connect(self) -> None:
        self.keeper = CountingKeeper(self._process.connect)
        self._run = asyncio.create_task(self.keeper.run(), name="keeper")

    async def _disconnect(self) -> None:
        self._run.cancel()
        with suppress(asyncio.CancelledError):
            await self._run

    def _shown(self, handle: JobHandle) -> str:
        return (self.directory(handle.job_name) / "shown").read_text()
