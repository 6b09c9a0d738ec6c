"""An account of a real Slurm as a `World`: jobs are led over HTTP, and Slurm's own commands do the rest.

Programs in front of the commands count the calls, and simulate what a real controller does only now and then.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import secrets
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, ClassVar, Self

import asyncssh

from nni_manager.domain.experiment import Json, PlatformSpec
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import Feature, Lag, LaggingStorage, LedWorld, Recorder, lagging_storage
from nni_manager.platforms.slurm import states
from nni_manager.platforms.slurm.platform import SlurmPlatform
from nni_manager.platforms.slurm.script import is_of
from tests.fakes.slurm.cluster import SlurmCluster
from tests.platforms.remote.ssh_machines import RealMachine, home_of_manager
from trial_runner import protocol

#: Seconds between two lists.
POLL_S = 0.3
_FRONT = """\
#!/bin/sh
echo "$(date +%s.%N) {name} $$" >> {folder}/calls
while [ -e {folder}/hang ]; do sleep 0.05; done
if [ -e {folder}/outage ]; then
    echo "{name}: error: Unable to contact slurm controller (connect failure)" >&2
    exit 1
fi
if [ {name} = sbatch ] && [ -e {folder}/lose ]; then
    rm {folder}/lose
    {real} "$@" > /dev/null
    kill -9 $$
fi
if [ -e {folder}/vanished ] && [ {name} = squeue -o {name} = sacct ]; then
    {real} "$@" | grep -vE -f {folder}/vanished || true
    exit 0
fi
exec {real} "$@"
"""


class HastySlurm(SlurmPlatform):
    """Waits less than a real site needs."""

    settle_s = 1.0
    loss_apart_s = 0.5


class SlurmWorld(LedWorld):
    native_states = tuple(
        re.findall(r"([A-Z_]+) +(?:PENDING|RUNNING|SUCCEEDED|FAILED|CANCELLED|PREEMPTED|LOST)", states.__doc__ or "")
    )
    pace: ClassVar[tuple[int, float]] = (3, 2 * POLL_S)
    max_observe_calls = 2
    max_sessions = 0
    patience_s = 30.0
    trial_gpu_number = 0
    absent: ClassVar[Mapping[Feature, str]] = {
        Feature.CREDENTIALS: "commands on this machine need no login",
        Feature.MACHINES: "Slurm's controller is asked, never a node",
        Feature.QUEUE: "Slurm does not say whether a preemption was its queue's intention",
        Feature.REPLICAS: "a trial is one process",
        Feature.TIME_LIMIT: "Slurm looks at time limits every 30 s; acceptance tests wait for it",
        Feature.SECOND_RUN: "the manager cancels a job that Slurm runs again",
        Feature.FOREIGN_JOBS: "names of jobs hold the experiment's nonce",
    }

    def __init__(self, directory: Path, cluster: SlurmCluster, **settings: Any) -> None:
        section = {"platform": "slurm", "options": ["--hold"], "trialGpuNumber": 0, **settings}
        super().__init__(directory, PlatformSpec(name="slurm", service="slurm", settings=section))
        self.cluster = cluster
        self.secrets = ("the-token-of-this-attempt",)
        self.front = directory / "front"
        self._path = f"{self.front}:{cluster.environment['PATH']}"
        self._nonce = secrets.token_hex(8)
        self._experiments = {self.recorder.experiment_id: self.recorder}

    async def __aenter__(self) -> Self:
        self.front.mkdir()
        for name in ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo"):
            real = shutil.which(name, path=self.cluster.environment["PATH"])
            path = self.front / name
            path.write_text(_FRONT.format(name=name, folder=self.front, real=real))
            path.chmod(0o755)
        # other tests have jobs of the same names
        self._earlier = set((await self._call("squeue", "-h", "-t", "all", "-o", "%i")).split())
        self._mark("calls")
        return await super().__aenter__()

    async def remove_all(self) -> None:
        for name in ("hang", "outage", "lose", "vanished"):
            self._unmark(name)
        await self._call("sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxSubmitJobsPerUser=-1")
        await asyncio.to_thread(self.cluster.clear)

    # The adapter

    def made(self, recorder: Recorder, settings: Json) -> Platform[Any]:
        environment = {**self.cluster.environment, "PATH": self._path}
        host = dataclasses.replace(
            recorder.host(self.keeper), service=self._section.service, caller_environment=environment
        )
        config = registry.config_of(dataclasses.replace(self._section, settings=settings))
        return HastySlurm(config.model_copy(update={"poll_interval": POLL_S}), host)

    def make_pushing(self) -> Platform[Any]:
        return self.made(self.recorder, {**self._settings, "options": [], "nniManagerIp": "127.0.0.1"})

    def make_of(self, recorder: Recorder) -> Platform[Any]:
        recorder.folder.mkdir(exist_ok=True)
        self._experiments[recorder.experiment_id] = recorder
        return self.made(recorder, self._settings)

    def state_of(self, native: str) -> JobState:
        return states.job_state(native)

    # Jobs

    def job_of(self, recorder: Recorder, trial_id: str) -> JobSpec:
        """Neighbours have the same id in every test, so the nonce tells their jobs apart."""
        spec = super().job_of(recorder, trial_id)
        return dataclasses.replace(spec, nonce=self._nonce, caller_environment={"PATH": self._path})

    def pushing_job(self, trial_id: str, command: str, runner_environment: Mapping[str, str]) -> JobSpec:
        return dataclasses.replace(self.job(trial_id), command=command, runner_environment=runner_environment)

    async def begin(self, handle: JobHandle) -> None:
        id = await self._id(handle)
        await self._call("scontrol", "update", f"JobId={id}", "StartTime=now", "Partition=main", check=False)
        await self._call("scontrol", "release", id, check=False)
        await super().begin(handle)

    async def vanish(self, handle: JobHandle) -> None:
        id = await self._id(handle)
        await self._call("scancel", "--batch", "--signal=KILL", id)  # its runner leaves no report
        with (self.front / "vanished").open("a") as file:
            file.write(f"^{id}\\|\n")

    async def overlook(self, handle: JobHandle, is_listed: bool) -> None:
        if is_listed:
            self._unmark("vanished")
        else:
            (self.front / "vanished").write_text(f"^{await self._id(handle)}\\|\n")
            await asyncio.sleep(POLL_S)  # as long as a list is used again

    async def announce_end(self, handle: JobHandle) -> None:
        await self._call("scancel", "--batch", "--signal=USR1", await self._id(handle))

    async def knows_of_end(self, handle: JobHandle) -> bool:
        folder = (await self.environment(handle))[protocol.ENV_SYSTEM_DIR]
        return (Path(folder) / protocol.ENDING_FILE).exists()

    async def hold_back(self, handle: JobHandle, number: int) -> str:
        id = await self._id(handle)
        if number == 0:
            return "JobHeldUser"
        await self._call("scontrol", "update", f"JobId={id}", "StartTime=now+1hour")
        await self._call("scontrol", "release", id)
        return "BeginTime"

    async def strand(self, handle: JobHandle) -> str:
        id = await self._id(handle)
        await self._call("scontrol", "update", f"JobId={id}", "Partition=closed")
        await self._call("scontrol", "release", id)
        return "PartitionDown"

    async def cancel_in_portal(self, handle: JobHandle) -> None:
        await self._call("scancel", await self._id(handle))

    async def count(self, job_name: str) -> int:
        rows = (await self._call("squeue", "-h", "-t", "all", "-o", "%i|%N|%T|%j")).splitlines()
        named = [row.split("|") for row in rows if is_of(row.rpartition("|")[2], job_name)]
        return sum(not (state == "FAILED" and not nodes) for id, nodes, state, _ in named if id not in self._earlier)

    def lag(self, lag: Lag) -> AbstractContextManager[LaggingStorage]:
        return lagging_storage(self.recorder.folder / self._section.service, lag)

    # The platform

    @property
    def remote_calls(self) -> int:
        return len((self.front / "calls").read_text().splitlines())

    @property
    def calls_seen(self) -> Sequence[float]:
        calls = (line.split() for line in (self.front / "calls").read_text().splitlines())
        return [float(moment) for moment, name, _ in calls if name == "squeue"]

    @property
    def sessions_seen(self) -> int:
        return 0

    async def start_outage(self) -> None:
        self._mark("outage")

    async def end_outage(self) -> None:
        self._unmark("outage")

    async def start_shortage(self) -> None:
        jobs = len((await self._call("squeue", "-h", "-o", "%i")).splitlines())
        await self._call("sacctmgr", "-i", "modify", "qos", "normal", "set", f"MaxSubmitJobsPerUser={jobs}")

    async def end_shortage(self) -> None:
        await self._call("sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxSubmitJobsPerUser=-1")

    async def start_hanging(self) -> None:
        self._mark("hang")

    async def end_hanging(self) -> None:
        self._unmark("hang")

    async def lose_answer(self) -> None:
        self._mark("lose")

    async def traces(self, experiment_id: str) -> Collection[str]:
        names = (await self._call("squeue", "-h", "-o", "%j")).splitlines()
        jobs = [name for name in names if f"_{experiment_id}_" in name]
        folder = self._experiments[experiment_id].folder / self._section.service
        return [*jobs, *(str(path) for path in folder.glob("*/*") if path.is_file())]

    def _mark(self, name: str) -> None:
        (self.front / name).write_text("")

    def _unmark(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self.front / name)

    async def _call(self, *command: str, check: bool = True) -> str:
        return (await asyncio.to_thread(self.cluster.call, *command, check=check)).stdout

    async def _id(self, handle: JobHandle) -> str:
        """The id of a job, by its name: tests act on the platform, bypassing the adapter."""
        async with asyncio.timeout(self.patience_s):
            while True:
                rows = (await self._call("squeue", "-h", "-t", "all", "-o", "%i|%j")).splitlines()
                found = [row.partition("|")[0] for row in rows if is_of(row.partition("|")[2], handle.job_name)]
                if found:
                    return max(found, key=int)
                await asyncio.sleep(0.02)


class SlurmLoginWorld(SlurmWorld):
    """The same account over a login node that allows one session, and does not share a folder with the manager."""

    absent: ClassVar[Mapping[Feature, str]] = {
        **{feature: why for feature, why in SlurmWorld.absent.items() if feature is not Feature.CREDENTIALS},
        Feature.STORAGE: "folders are copied to the manager's own disk, which does not lag",
    }
    max_sessions = 1

    def __init__(self, directory: Path, cluster: SlurmCluster) -> None:
        self.login = RealMachine(directory / "login")
        super().__init__(directory, cluster, login=self.login.entry())
        self.login.environment = {"SLURM_CONF": str(cluster.conf)}
        profile = f"echo Welcome; export PATH={self._path}\n"
        (self.login.home / ".bash_profile").write_text(profile)

    async def open(self) -> None:
        self._held.enter_context(home_of_manager(self.front.parent / "manager"))
        await self.login.start()
        self._held.push_async_callback(self.login.stop)
        await super().open()

    def make_unauthorised(self) -> Platform[Any]:
        key = self.front.parent / "strange_key"
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(key))
        return self.made(self.recorder, {**self._settings, "login": self.login.entry(sshKeyFile=str(key))})

    @property
    def sessions_seen(self) -> int:
        return self.login.logins

    async def traces(self, experiment_id: str) -> Collection[str]:
        folder = self.login.home / ".nni-manager" / experiment_id
        shared = [str(path) for path in folder.glob("*") if path.is_file()]
        return [*await super().traces(experiment_id), *shared]
