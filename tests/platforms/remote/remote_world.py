"""A machine reached by SSH as a `World`: a keeper there, and processes that do what they are told through a pipe."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import psutil

from nni_manager.code_archive import pack
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.ids import attempt_directory_of, job_name
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.machines.keeper.client import Keeper
from nni_manager.machines.keeper.job_events import job_report
from nni_manager.machines.ssh.address import Address
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.testing import Feature, Recorder, unreachable_keeper
from nni_manager.platforms.remote.config import RemoteConfig
from nni_manager.platforms.remote.platform import RemotePlatform
from tests.platforms.keeper_world import KeeperWorld, job_spec
from tests.platforms.obedient_job import ended
from tests.platforms.remote.ssh_machines import PASSWORD, SshMachine, home_of_manager
from trial_runner import protocol

_IDENTITY = "daemon"


class RemoteWorld(KeeperWorld):
    absent: ClassVar[Mapping[Feature, str]] = {
        Feature.STORAGE: "the keeper reads results where they are written",
        Feature.PENDING: "a machine starts a job at once",
        Feature.PUSH: "the keeper ships what jobs report",
        Feature.HOPELESS_WAITS: "machines start every job that they accept",
        Feature.TIME_LIMIT: "machines have no time limit",
        Feature.ENDING_NOTICE: "a keeper announces nothing",
        Feature.SECOND_RUN: "a keeper runs each job once",
        Feature.OVERLOOKED: "a keeper lists every job that it has",
        Feature.QUEUE: "machines have no queue",
        Feature.ROOM: "machines without GPUs take as many jobs as trialConcurrency allows",
        Feature.WAIT_REASONS: "a machine starts a job at once",
        Feature.REPLICAS: "a job is one process",
        Feature.PORTAL: "jobs are ended by the manager alone",
        Feature.FOREIGN_JOBS: "a keeper's jobs are those of one manager, and their names hold the experiment",
        Feature.PACE: "a machine's keeper may be asked as often as one likes",
    }
    native_states = re.findall("[A-Z]+", re.findall(r"`state` is one of ([A-Z, ]+)", protocol.__doc__ or "")[0])
    max_observe_calls = 4  # some jobs may have been told of on no connection yet

    def __init__(self, directory: Path, machine: SshMachine, *others: SshMachine) -> None:
        super().__init__(directory)
        self.secrets = (PASSWORD,)
        self.machine = machine
        self.machines = (machine, *others)
        self.recorder.connections = Connections(_IDENTITY)
        self.recorder.folder = directory / "experiment"
        self._packed = directory / "packed"
        self._keeper_directory = self.keeper_directory(machine)
        self._specs: dict[str, JobSpec] = {}
        self._stack = ExitStack()
        self._manager_home = directory / "manager"
        self.platforms: list[RemotePlatform] = []

    async def __aenter__(self) -> Self:
        self._stack.enter_context(home_of_manager(self._manager_home))
        self._write_code()
        self._packed.mkdir()
        self.recorder.code_archive = pack(self.code, self._packed).path
        for machine in self.machines:
            await machine.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        await self.end_hanging()
        for machine in self.machines:
            await self._end_processes(machine)
            await machine.stop()
        self._stack.close()
        await self._clean_up()

    # The adapter

    def config(self, machines: Sequence[SshMachine], **changes: Any) -> RemoteConfig:
        """`changes`: of the first machine."""
        first, *others = machines
        entries = [first.entry(**changes), *(machine.entry() for machine in others)]
        section = {"platform": "remote", "machineList": entries}
        return RemoteConfig.model_validate(section)

    def make(self, **changes: Any) -> RemotePlatform:
        return self._make(self.config([self.machine], **changes), self.recorder)

    def make_of(self, recorder: Recorder, **changes: Any) -> RemotePlatform:
        return self._make(self.config([self.machine], **changes), recorder)

    def make_on_machines(self) -> RemotePlatform:
        """Jobs on the second are led through the same pipes."""
        ours, theirs = (self.folder(machine) / self._experiment_folder for machine in self.machines)
        for folder in (ours / "trials", theirs):
            folder.mkdir(parents=True, exist_ok=True)
        (theirs / "trials").symlink_to(ours / "trials")
        return self._make(self.config(self.machines), self.recorder)

    def _make(self, config: RemoteConfig, recorder: Recorder) -> RemotePlatform:
        platform = RemotePlatform(config, recorder.host(unreachable_keeper()))
        platform._machines.together_s = self.patience_s
        self.platforms.append(platform)
        return platform

    @property
    def _experiment_folder(self) -> str:
        return f"{self.recorder.experiment_id}.service"

    def make_unauthorised(self) -> RemotePlatform:
        wrong = "no-such-passw0rd"
        self.secrets = (*self.secrets, wrong)
        return self.make(password=wrong)

    def state_of(self, native: str) -> JobState:
        return job_report({"state": native, "exit_code": 0}).state

    async def restart(self) -> None:
        self.recorder.connections = Connections(_IDENTITY)

    # Jobs

    def command(self, trial_id: str, command: str, *, recorder: Recorder | None = None, **changes: Any) -> JobSpec:
        experiment_id = (recorder or self.recorder).experiment_id
        name = job_name(experiment_id, trial_id, 1)
        if name not in self._specs:
            spec = job_spec(
                name=name,
                experiment_id=experiment_id,
                trial_id=trial_id,
                attempt=1,
                command=command,
                caller_environment={"PATH": "/nowhere"},
                code_directory=str(self.code),
                attempt_directory=str(self._manager_home / "never"),
            )
            self._specs[name] = replace(spec, **changes)
        return self._specs[name]

    def directory(self, job_name: str) -> Path:
        """On the first machine."""
        experiment = f"{self._specs[job_name].experiment_id}.service"
        return self.folder(self.machine) / experiment / "trials" / attempt_directory_of(job_name)

    def folder(self, machine: SshMachine) -> Path:
        """Ours on it."""
        return machine.home / ".nni-manager" / _IDENTITY / Address.of(machine.entry()).folder

    def keeper_directory(self, machine: SshMachine) -> Path:
        return self.folder(machine) / "keeper"

    async def vanish(self, handle: JobHandle) -> None:
        await self.start_outage()
        pid = self.pid(handle)
        await self.kill_keeper(signal.SIGKILL)
        os.killpg(pid, signal.SIGKILL)
        await ended(pid)
        self._state_file(handle.job_name).unlink()
        shutil.rmtree(self.directory(handle.job_name))
        await self.end_outage()

    # The platform

    @property
    def remote_calls(self) -> int:
        return sum(site.machine.keeper.questions for one in self.platforms for site in one._machines)

    @property
    def sessions_seen(self) -> int:
        return self.machine.logins

    async def cut_off(self, handle: JobHandle) -> None:
        await self._machine_of(handle).stop()

    async def reconnect(self, handle: JobHandle) -> None:
        await self._machine_of(handle).start()

    async def lose_answer(self) -> None:
        for one in self.platforms:
            for site in one._machines:
                _lose_next_answer(site.machine.keeper)

    async def traces(self, experiment_id: str) -> Collection[str]:
        """Jobs on file and code; what trials wrote stays until the experiment is deleted."""
        ours = f"{experiment_id}.service/*.tar.gz*"
        return [
            str(path)
            for machine in self.machines
            for pattern in (f"keeper/jobs/*_{experiment_id}_trial_*.jsonl", ours)
            for path in self.folder(machine).glob(pattern)
        ]

    async def start_outage(self) -> None:
        await self.machine.stop()

    async def end_outage(self) -> None:
        await self.machine.start()

    def _machine_of(self, handle: JobHandle) -> SshMachine:
        return next(one for one in self.machines if f":{one.port}" in handle.data)

    def _state_file(self, job_name: str) -> Path:
        files = [self.keeper_directory(machine) / "jobs" / f"{job_name}.jsonl" for machine in self.machines]
        return next((file for file in files if file.exists()), files[0])

    async def _end_processes(self, machine: SshMachine) -> None:
        """Whatever runs there."""
        for process in processes_of(machine):
            with suppress(psutil.Error):
                process.kill()
            await ended(process.pid)


def _lose_next_answer(keeper: Keeper) -> None:
    ask = keeper.request

    async def lose(verb: str, **arguments: Any) -> Any:
        answer = await ask(verb, **arguments)
        if verb == "spawn":
            keeper.request = ask  # type: ignore[method-assign]
            raise PlatformUnavailable("the answer was lost on its way")
        return answer

    keeper.request = lose  # type: ignore[method-assign]


def processes_of(machine: SshMachine) -> list[psutil.Process]:
    """Its users', told by their home folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("HOME") == str(machine.home) and process.pid != os.getpid():
                found.append(process)
    return found
