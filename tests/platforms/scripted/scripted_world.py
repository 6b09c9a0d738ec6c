"""The scripted cluster as a `World`: a real keeper, real runners whose results are read, commands led through pipes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from nni_manager.domain.clock import now_ms
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.archive import pack
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import Lag, LaggingStorage, lagging_storage
from nni_manager.platforms.scripted import states
from nni_manager.platforms.scripted.platform import ScriptedPlatform
from tests.platforms.keeper_world import KeeperWorld, job_spec
from tests.platforms.obedient_job import PATIENCE_S, ended
from trial_runner import protocol

SECRET = "t0ken-of-the-runner"
FAR_S = 1_000_000
#: No wrapper of an interpreter, which would add variables of its own.
_PATH = f"{Path(os.path.realpath(sys.executable)).parent}:/usr/bin:/bin"
_TABLE = re.findall(r"^(\w+) +[A-Z]+  ", states.__doc__ or "", re.MULTILINE)


class ScriptedWorld(KeeperWorld):
    native_states = _TABLE
    max_observe_calls = 2

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.secrets = (SECRET,)
        self.folder = self.recorder.folder = directory / "experiment"
        self.storage = directory / "mounted"

    async def __aenter__(self) -> Self:
        self._write_code()
        (self.folder / "code").mkdir(parents=True)
        self.recorder.code_archive = pack(self.code, self.folder / "code").path
        self._connect_anew()
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
        await self._clean_up()

    # The adapter

    def make(self, **settings: Any) -> ScriptedPlatform:
        """With settings of its own, or with those that the world's other methods expect."""
        default = {
            "launch": "process", "channel": "pull", "storage": str(self.storage),
            "trials": [{"delay": FAR_S}], "outage": {"after": FAR_S, "for": FAR_S},
        }  # fmt: skip
        return ScriptedPlatform({"platform": "scripted", **(settings or default)}, self.recorder.host(self.keeper))

    def make_pushing(self) -> Platform:
        return self.make(launch="process", channel="push")

    def make_unauthorised(self) -> Platform:
        return self.make(launch="none", wrongCredentials={})

    def state_of(self, native: str) -> JobState:
        return states.job_state(native)

    # Jobs

    def command(self, trial_id: str, command: str, sequence_id: int = 0, attempt: int = 1) -> JobSpec:
        experiment_id = self.recorder.experiment_id
        attempt_id = trial_id if attempt == 1 else f"{trial_id}-{attempt}"
        return job_spec(
            name=job_name(experiment_id, trial_id, attempt), experiment_id=experiment_id, trial_id=trial_id,
            attempt=attempt, sequence_id=sequence_id, command=command,
            caller_environment={"PATH": _PATH, "HOME": "/nowhere", "API_KEY": "of-the-caller"},
            code_directory=str(self.code), attempt_directory=str(self.folder / "trials" / attempt_id),
            runner_environment={protocol.ENV_TOKEN: SECRET, protocol.ENV_MANAGER_URL: "http://127.0.0.1:9/none"},
        )  # fmt: skip

    def pushing_job(self, trial_id: str, command: str, runner_environment: Mapping[str, str]) -> JobSpec:
        return dataclasses.replace(self.command(trial_id, command), runner_environment=runner_environment)

    def directory(self, job_name: str) -> Path:
        """Where the runner of a job works, on the shared storage."""
        return self.storage / self.recorder.experiment_id / job_name.rpartition("_")[2]

    async def begin(self, handle: JobHandle) -> None:
        """Its delay is over: on file, and for the shell that sleeps."""
        path = self.folder / "service" / handle.job_name / "job.json"
        entry = json.loads(path.read_text())
        entry["rule"]["delay"] = 0.0
        path.write_text(json.dumps(entry))
        shell = psutil.Process(self.pid(handle))
        async with asyncio.timeout(PATIENCE_S):
            while not (sleeping := shell.children()):  # noqa: ASYNC110 (nothing tells when a shell begins a command)
                await asyncio.sleep(0.005)
        sleeping[0].kill()
        (self.directory(handle.job_name) / protocol.STDOUT_FILE).touch()  # as its runner does a moment later

    async def vanish(self, handle: JobHandle) -> None:
        pid = self.pid(handle)
        shutil.rmtree(self.folder / "service" / handle.job_name)
        os.killpg(pid, signal.SIGKILL)
        await ended(pid)

    def lag(self, lag: Lag) -> AbstractContextManager[LaggingStorage]:
        return lagging_storage(self.storage, lag)

    # The platform

    async def start_outage(self) -> None:
        self._set_begun(now_ms() - FAR_S * 1000)

    async def end_outage(self) -> None:
        self._set_begun(now_ms())

    def _set_begun(self, moment_ms: int) -> None:
        path = self.folder / "service" / "cluster.json"
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({"begunMs": moment_ms}))
        draft.replace(path)
