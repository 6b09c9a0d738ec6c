"""A world with a fake platform that is polled over HTTP, and with folders of jobs on storage that we mount."""

from __future__ import annotations

import abc
import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nni_manager.code_archive import pack
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.ids import attempt_directory_of, job_name
from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import Lag, LaggingStorage, Recorder, lagging_storage
from tests.fakes.process import FakeProcess
from tests.platforms.keeper_world import job_spec
from tests.platforms.obedient_job import ObedientWorld
from tests.waiting import until_async
from trial_runner import protocol

TOKEN = "the-manager.t0ken-of-the-runner"
NONCE = "n0nce123"


class WebWorld(ObedientWorld):
    """`directory`: of the test. The fake is shared, and reset for every test."""

    def __init__(self, directory: Path, fake: FakeProcess) -> None:
        super().__init__()
        self.fake = fake
        self.code = directory / "code"
        #: The storage as it is seen here, and in containers.
        self.here, self.there = directory / "here", directory / "there"
        self.recorder.folder = directory / "experiment"
        self._is_pretended = False
        #: Experiment → its recorder.
        self.experiments = {self.recorder.experiment_id: self.recorder}

    async def __aenter__(self) -> Self:
        self._write_code()
        self.here.mkdir()
        (self.recorder.folder / "code").mkdir(parents=True)
        self.recorder.code_archive = pack(self.code, self.recorder.folder / "code").path
        self.reset()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self.fake.control("reset", users={})
        for pipes in self._pipes.values():
            pipes.close()

    # For worlds

    @abc.abstractmethod
    def reset(self) -> None:
        """The fake knows nothing but this test's account; jobs wait until they are begun."""

    @abc.abstractmethod
    def entry_of(self, job_name: str) -> dict[str, Any]:
        """What the fake says of the job that was submitted for this one; empty: there is none."""

    def pretend(self) -> None:
        """Jobs have no containers from now on; the fake says that they run."""
        self._is_pretended = True
        self.fake.control("behaviour", pretended_s=1_000_000)

    def submitted(self, job_name: str) -> list[dict[str, Any]]:
        """All jobs that were submitted for this one."""
        found = self.entry_of(job_name)
        return [found] if found else []

    @abc.abstractmethod
    async def start_job(self, job_name: str) -> None:
        """It waits no more."""

    @abc.abstractmethod
    def has_ended(self, entry: dict[str, Any]) -> bool:
        """By what the fake says of a job."""

    def directory(self, job_name: str) -> Path:
        """The attempt's folder."""
        return self.here / job_name.split("_")[2] / attempt_directory_of(job_name)

    async def restart(self) -> None:
        self.recorder.connections = Connections()

    def make_of(self, recorder: Recorder) -> Platform[Any]:
        recorder.folder.mkdir(exist_ok=True)
        self.experiments[recorder.experiment_id] = recorder
        return self.built(recorder)

    @abc.abstractmethod
    def built(self, recorder: Recorder, **changes: Any) -> Platform[Any]:
        """An instance of this experiment."""

    # Jobs

    def command(self, trial_id: str, command: str, recorder: Recorder | None = None, **fields: Any) -> JobSpec:
        recorder = recorder or self.recorder
        experiment_id = recorder.experiment_id
        made = job_spec(
            name=job_name(experiment_id, trial_id, 1),
            experiment_id=experiment_id,
            trial_id=trial_id,
            attempt=1,
            command=command,
            caller_environment={"API_KEY": "of-the-caller"},
            code_directory=str(self.code),
            attempt_directory=str(recorder.folder / "trials" / trial_id),
            runner_environment={protocol.ENV_TOKEN: TOKEN},
            nonce=NONCE,
        )
        return dataclasses.replace(made, **fields)

    def pushing_job(self, trial_id: str, command: str, runner_environment: Mapping[str, str]) -> JobSpec:
        return self.command(trial_id, command, runner_environment=runner_environment)

    async def begin(self, handle: JobHandle) -> None:
        await self.start_job(handle.job_name)
        if self._is_pretended:
            return
        folder = self.directory(handle.job_name)
        await until_async(lambda: (folder / "starts").exists() and (folder / protocol.STDOUT_FILE).exists())

    async def end(self, handle: JobHandle, exit_code: int) -> None:
        self._pipes[handle.job_name].order(f"exit {exit_code}")
        await until_async(lambda: self.has_ended(self.entry_of(handle.job_name)))

    async def count(self, job_name: str) -> int:
        return len(self.submitted(job_name))

    def lag(self, lag: Lag) -> AbstractContextManager[LaggingStorage]:
        return lagging_storage(self.here, lag)

    # The platform

    @property
    def remote_calls(self) -> int:
        return len(self.fake.control("requests"))

    async def start_outage(self) -> None:
        self.fake.control("behaviour", outage="drop")

    async def end_outage(self) -> None:
        self.fake.control("behaviour", outage="")

    @property
    def calls_seen(self) -> Sequence[float]:
        return [call[0] for call in self.fake.control("requests")]

    async def start_hanging(self) -> None:
        self.fake.control("behaviour", hang=True)

    async def end_hanging(self) -> None:
        self.fake.control("behaviour", hang=False)

    async def lose_answer(self) -> None:
        self.fake.control("behaviour", lose_answers=1)

    def shared_files(self, experiment_id: str) -> list[str]:
        """What lies on the storage for all attempts of an experiment."""
        return [str(path) for path in self.here.glob(f"{experiment_id}/*") if path.is_file()]


async def insisted(platform: Platform[Any], spec: JobSpec, pause_s: float) -> JobHandle:
    """Submits as the scheduler does: again, and marked as a repeat, until the outcome is known."""
    while True:
        try:
            answer = await platform.submit(spec)
            assert isinstance(answer, JobHandle)
            return answer
        except PlatformUnavailable as error:
            spec = spec if error.refused else dataclasses.replace(spec, is_repeat=True)
            await asyncio.sleep(pause_s)
