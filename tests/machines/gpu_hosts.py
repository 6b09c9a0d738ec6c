"""Several keepers of this machine that stand for hosts with cards, and daemons that work with them and are killed."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.job import JobSpec
from nni_manager.machines.gpu_machines import MachinePool, PoolMachine, gpu_environment
from nni_manager.machines.keeper.client import Keeper
from nni_manager.machines.keeper.jobs import KeeperJobs
from nni_manager.machines.keeper.local_process import LocalKeeper
from nni_manager.machines.keeper.machines import KeeperConnection
from nni_manager.machines.ledger import Demand
from nni_manager.machines.waiting_queue import KeeperMachine, Places
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import NoRoom
from nni_manager.platform_kit.testing import Recorder, unreachable_keeper
from tests.fake_driver import FakeDriver
from trial_runner import processes

_SPAWNING = threading.Lock()
HOST = "FAKE_HOST"


class GpuHost(LocalKeeper):
    """A keeper with a driver of its own."""

    def __init__(self, name: str, folder: Path, cards: int) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.driver = FakeDriver(self.folder / "driver", cards)
        self._runtime = Path(tempfile.mkdtemp(prefix="nni-"))  # paths of sockets are short
        super().__init__(self.folder / "keeper", self._runtime / "keeper.sock")
        self.started: list[subprocess.Popen[bytes]] = []

    def _spawn(self, ready: int) -> subprocess.Popen[bytes]:
        with _SPAWNING, mock.patch.dict(os.environ, self.driver.environment):
            self.started.append(super()._spawn(ready))
        return self.started[-1]

    def trials(self) -> list[dict[str, str]]:
        """The environments of all processes that its jobs have now."""
        found = []
        for keeper in self.started:
            for pid in processes.all_pids():
                stat = processes.read_stat(pid)
                if stat is not None and stat.parent == keeper.pid and stat.state != "Z":
                    with suppress(OSError):
                        text = Path(f"/proc/{pid}/environ").read_text()
                        found.append(dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry))
        return [environment for environment in found if HOST in environment]

    async def end(self) -> None:
        for process in self.started:
            await asyncio.to_thread(process.wait)
        shutil.rmtree(self._runtime)


def job(name: str, gpu_number: int | None, *, is_repeat: bool = False) -> JobSpec:
    """A job as far as its places go."""
    return JobSpec(
        name=name,
        experiment_id="e",
        trial_id=name,
        attempt=1,
        sequence_id=0,
        command="",
        parameter_record="{}",
        protocol_environment={},
        caller_environment={},
        code_directory="/",
        attempt_directory="/",
        gpu_number=gpu_number,
        is_repeat=is_repeat,
    )


@dataclass
class Stored:
    """What outlives a daemon of one experiment."""

    name: str
    demand: Demand
    trials: int
    concurrency: int
    seconds: str
    intents: set[str] = field(default_factory=set)
    #: Job → host.
    accepted: dict[str, str] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    #: Why its last job found no room.
    why: str = ""


class Daemon:
    """`run` works until all is done, or it is cancelled: then it knows nothing any more."""

    def __init__(self, hosts: Mapping[str, GpuHost]) -> None:
        self._hosts = hosts
        self._connections = Connections()

    async def run(self, experiments: list[Stored]) -> None:
        keepers = {name: Keeper(host.connect, name) for name, host in self._hosts.items()}
        for name, keeper in keepers.items():
            self._connections.offer(_key(name), lambda k=keeper, n=name: self._connection(k, n))
        running = [asyncio.create_task(keeper.run()) for keeper in keepers.values()]
        try:
            async with asyncio.TaskGroup() as group:
                for experiment in experiments:
                    group.create_task(self._work(experiment))
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)

    def _connection(self, keeper: Keeper, name: str) -> KeeperConnection:
        return KeeperConnection(keeper, self._connections.shared_object(Places), _key(name))

    async def _work(self, stored: Stored) -> None:
        recorder = Recorder(stored.name)
        host = replace(recorder.host(unreachable_keeper()), connections=self._connections)
        machines = {name: KeeperMachine(name=f"fake:{name}", title=name, places=None) for name in self._hosts}
        jobs = {name: KeeperJobs(host, has_results=False, key=_key(name)) for name in self._hosts}
        parked = [PoolMachine(machine=machines[n], demand=stored.demand, jobs=jobs[n]) for n in self._hosts]
        park = MachinePool(host, parked, recorder.news.set)
        async with AsyncExitStack() as entered:
            for name in self._hosts:
                await jobs[name].enter([machines[name]])
                entered.push_async_callback(jobs[name].leave)
            entered.callback(park.want, 0)
            while len(stored.done) < stored.trials:
                recorder.news.clear()
                await self._turn(stored, park, jobs)
                with suppress(TimeoutError):
                    await asyncio.wait_for(recorder.news.wait(), 0.5)

    async def _turn(self, stored: Stored, park: MachinePool, jobs: Mapping[str, KeeperJobs]) -> None:
        for name in sorted(stored.intents - stored.accepted.keys()):
            await self._submit(stored, park, jobs, name, is_repeat=True)
        while len(stored.intents - stored.done) < stored.concurrency and len(stored.intents) < stored.trials:
            name = f"{stored.name}-{len(stored.intents)}"
            stored.intents.add(name)
            if not await self._submit(stored, park, jobs, name, is_repeat=False):
                break
        park.want(min(stored.concurrency - len(stored.intents - stored.done), stored.trials - len(stored.intents)))
        for host in jobs:
            names = [name for name, at in stored.accepted.items() if at == host and name not in stored.done]
            with suppress(PlatformUnavailable):
                reports = await jobs[host].reports(names)
                stored.done |= {name for name, report in reports.items() if report.state.is_final}

    async def _submit(
        self, stored: Stored, park: MachinePool, jobs: Mapping[str, KeeperJobs], name: str, *, is_repeat: bool
    ) -> bool:
        try:
            spec = job(name, stored.demand.count, is_repeat=is_repeat)
            found = await park.reserve(spec)
            if isinstance(found, NoRoom):
                stored.why = found.why.sentence
                stored.intents.discard(name)
                return False
            at = next(host for host, kept in jobs.items() if kept is found.jobs)
            with park.held(found, name):
                shown = gpu_environment(spec, found.reservation)
                environment = {"PATH": os.environ["PATH"], HOST: at, "EXPERIMENT": stored.name, "TRIAL": name, **shown}
                folder = self._hosts[at].folder / name
                request = {"command": f"sleep {stored.seconds}", "environment": environment, "files": {}, "grace_s": 0}
                request |= {"directory": "/", "attempt_directory": str(folder)}
                await found.jobs.submit(name, request, found.reservation)
        except PlatformUnavailable as error:
            if error.refused:
                stored.intents.discard(name)
            return False
        stored.accepted[name] = at
        return True


async def kill_now_and_then(hosts: Mapping[str, GpuHost], experiments: list[Stored], kills: int) -> None:
    """One daemon after the other, each killed at a random moment, until the last one has done everything."""
    for _ in range(kills):
        with suppress(TimeoutError):
            async with asyncio.timeout(random.uniform(0.05, 1.0)):
                return await Daemon(hosts).run(experiments)
    await Daemon(hosts).run(experiments)


def _key(host: str) -> str:
    return f"keeper:{host}"
