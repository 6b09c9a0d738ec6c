"""PAI-DLC as a `World`: the real SDK against the stand-in on a port, whose jobs are processes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from nni_manager.domain.ids import attempt_directory_of, job_name
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.archive import pack
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.testing import (
    Feature,
    Lag,
    LaggingStorage,
    Recorder,
    World,
    lagging_storage,
    unreachable_keeper,
)
from nni_manager.platforms.dlc import states
from nni_manager.platforms.dlc.platform import FOLDER, DlcPlatform
from tests.fakes.dlc.containers import Containers, Source
from tests.fakes.dlc.jobs import ENDED, Job
from tests.fakes.dlc.server import serving
from tests.fakes.dlc.service import DlcService
from tests.platforms.keeper_world import job_spec
from tests.platforms.obedient_job import PATIENCE_S, SCRIPT, Pipes
from trial_runner import protocol

KEY_ID, KEY_SECRET = "LTAIexample", "k3y-s3cret"
TOKEN = "manager.t0ken-of-the-runner"
NAS = "data1nas"
#: Owner of jobs that are not ours.
THEIRS = "somebody else"


class DlcWorld(World):
    absent: ClassVar[Mapping[Feature, str]] = {
        Feature.EXIT_CODE: "PAI-DLC does not tell the exit code of a job; its runner does",
        Feature.MACHINES: "PAI-DLC hides its machines",
        Feature.ROOM: "PAI-DLC queues whatever it is given",
    }
    #: In the test of paces, see there: eleven reads, and what it takes to begin two jobs.
    pace = (15, 1.0)
    native_states: ClassVar[Collection[str]] = tuple(states.STATES)
    max_observe_calls = 2

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self.secrets = (KEY_SECRET, TOKEN)
        self.nas, self.there = directory / "nas", directory / "container" / "data"
        self.folder = self.recorder.folder = directory / "experiment"
        self.code = directory / "code"
        self._pipes: dict[str, Pipes] = {}
        self._stack = ExitStack()
        self._replicas: dict[str, Pipes] = {}

    async def __aenter__(self) -> Self:
        for folder in (self.nas, self.code, self.folder / "code"):
            folder.mkdir(parents=True)
        (self.code / "job.sh").write_text(SCRIPT)
        for name, text in self.code_files.items():
            (self.code / name).write_text(text)
        self.recorder.code_archive = pack(self.code, self.folder / "code").path
        self.service = self.make_service()
        self.port = self._stack.enter_context(serving(self.service))
        return self

    def make_service(self) -> DlcService:
        containers = Containers(
            folder=self.directory / "state" / "containers",
            sources={NAS: Source(folder=self.nas, mount=str(self.there))},
        )
        service = DlcService(self.directory / "state", containers, keys={KEY_ID: KEY_SECRET})
        service.faults.hold = True
        return service

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self.service.kill_all()
        self._stack.close()
        for pipes in (*self._pipes.values(), *self._replicas.values()):
            pipes.close()

    # The adapter

    def settings(self, **fields: Any) -> dict[str, Any]:
        return {
            "platform": "dlc", "image": "registry.example.test/pai/pytorch:1.6", "jobType": "PyTorchJob", "podCount": 1,
            "ecsSpec": "ecs.c6.large", "region": "cn-hangzhou", "workspaceId": "12345", "nasDataSourceId": NAS,
            "accessKeyId": KEY_ID, "accessKeySecret": KEY_SECRET, "localStorageMountPoint": str(self.nas),
            "containerStorageMountPoint": str(self.there), "endpoint": f"http://127.0.0.1:{self.port}", **fields,
        }  # fmt: skip

    def make(self, *, recorder: Recorder | None = None, **fields: Any) -> DlcPlatform:
        host = (recorder or self.recorder).host(unreachable_keeper())
        return DlcPlatform(self.settings(**fields), host, list_lag_s=0.3, fresh_s=0.0)

    def make_of(self, recorder: Recorder) -> DlcPlatform:
        recorder.folder.mkdir(exist_ok=True)
        return self.make(recorder=recorder)

    def make_replicated(self) -> DlcPlatform:
        name = self.job("a").name
        self._replicas[name] = Pipes(self.attempt(name) / "replicas" / "replica-1")
        return self.make(podCount=2)

    def make_unauthorised(self) -> DlcPlatform:
        return self.make(accessKeySecret="wr0ng-s3cret")

    def make_pushing(self) -> DlcPlatform:
        self.service.faults.hold = False
        return self.make()

    def state_of(self, native: str) -> JobState:
        return states.job_state(native)

    async def restart(self) -> None:
        self.recorder.connections = Connections()

    # Jobs

    def spec(self, trial_id: str, command: str, recorder: Recorder | None = None, **fields: Any) -> JobSpec:
        experiment_id = (recorder or self.recorder).experiment_id
        defaults: dict[str, Any] = {
            "name": job_name(experiment_id, trial_id, 1), "experiment_id": experiment_id, "trial_id": trial_id,
            "attempt": 1, "command": command, "caller_environment": {"API_KEY": "of-the-caller"}, "nonce": "n0nce",
            "code_directory": str(self.code), "attempt_directory": str(self.folder / "trials" / trial_id),
            "runner_environment": {protocol.ENV_TOKEN: TOKEN, protocol.ENV_MANAGER_URL: "http://127.0.0.1:9/none"},
        }  # fmt: skip
        return job_spec(**{**defaults, **fields})

    def job(self, trial_id: str) -> JobSpec:
        return self.job_of(self.recorder, trial_id)

    def job_of(self, recorder: Recorder, trial_id: str) -> JobSpec:
        spec = dataclasses.replace(self.spec(trial_id, "exec /bin/sh job.sh", recorder), runner_environment={})
        if spec.name not in self._pipes:
            self._pipes[spec.name] = Pipes(self.attempt(spec.name))
        return spec

    def pushing_job(self, trial_id: str, command: str, runner_environment: Mapping[str, str]) -> JobSpec:
        return self.spec(trial_id, command, runner_environment=runner_environment)

    def attempt(self, job_name: str) -> Path:
        """Its folder on the NAS."""
        return self.nas / FOLDER / job_name.split("_")[2] / attempt_directory_of(job_name)

    def jobs_of(self, job_name: str) -> list[Job]:
        """Not those of others."""
        return [one for one in self.service.jobs.by_id.values() if one.name == job_name and one.owner != THEIRS]

    async def begin(self, handle: JobHandle) -> None:
        self.service.release(_id(handle))
        folder, deadline = self.attempt(handle.job_name), time.monotonic() + PATIENCE_S
        while self.service.faults.pretend_s is None and not all((folder / n).exists() for n in ("starts", "stdout")):
            assert time.monotonic() < deadline, self.service.containers.log(_id(handle), 0)
            await asyncio.sleep(0.01)

    async def report_from(self, handle: JobHandle, replica: int, line: str) -> None:
        await (self._replicas if replica else self._pipes)[handle.job_name].tell(f"report {line}")

    async def hold_back(self, handle: JobHandle, number: int) -> str:
        word = ("no ecs.c6.large is free", "quota rg1 is used up")[number]
        self.service.faults.reasons[_id(handle)] = word
        return word

    async def cancel_in_portal(self, handle: JobHandle) -> None:
        self.service.stop(_id(handle))

    async def plant(self, spec: JobSpec) -> None:
        role = {"Type": "Worker", "Image": "theirs", "PodCount": 1, "EcsSpec": "ecs.c6.large"}
        request = {
            "DisplayName": spec.name, "JobType": "PyTorchJob", "JobSpecs": [role], "UserCommand": "exec sleep 1000",
            "WorkspaceId": "12345", "Settings": {"Tags": {"nni_experiment": "wasps"}},
        }  # fmt: skip
        job = Job(id="dlctheirs", request=request, owner=THEIRS, created_s=time.time())
        job.note(job.created_s, "Creating")
        self.service.jobs.put(job)
        self.service.advance()

    async def is_planted(self, spec: JobSpec) -> bool:
        return self.service.jobs.by_id["dlctheirs"].status == "Running"

    async def traces(self, experiment_id: str) -> Collection[str]:
        """Jobs that have ended stay in the console."""
        names = [job.name for job in self.service.jobs.unfinished() if job.owner != THEIRS]
        shared = [str(path) for path in (self.nas / FOLDER).glob(f"{experiment_id}/*") if path.is_file()]
        return [name for name in names if name.split("_")[2] == experiment_id] + shared

    @property
    def sessions_seen(self) -> int:
        return 1  # every request is signed by itself, and has a connection of its own

    @property
    def calls_seen(self) -> Sequence[float]:
        return [moment for moment, _ in self.service.calls]

    async def start_hanging(self) -> None:
        self.service.faults.outage = "hang"

    async def end_hanging(self) -> None:
        self.service.faults.outage = ""

    async def lose_answer(self) -> None:
        self.service.faults.lost_creations = 1

    async def end(self, handle: JobHandle, exit_code: int) -> None:
        if handle.job_name in self._replicas:
            self._replicas[handle.job_name].order(f"exit {exit_code}")
        self._pipes[handle.job_name].order(f"exit {exit_code}")
        await self.until_ended(handle)

    async def until_ended(self, handle: JobHandle) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.service.jobs.by_id[_id(handle)].status not in ENDED:
            assert time.monotonic() < deadline, self.service.containers.log(_id(handle), 0)
            await asyncio.sleep(0.01)

    async def vanish(self, handle: JobHandle) -> None:
        self.service.vanish(_id(handle))

    async def count(self, job_name: str) -> int:
        return len(self.jobs_of(job_name))

    async def environment(self, handle: JobHandle) -> Mapping[str, str]:
        await self.tell(handle, "environment")
        entries = self._shown(handle).rstrip("\0").split("\0")
        return dict(entry.split("=", 1) for entry in entries)

    async def code_file(self, handle: JobHandle, name: str) -> str:
        await self.tell(handle, f"show {name}")
        return self._shown(handle)

    async def parameter_record(self, handle: JobHandle) -> str:
        environment = await self.environment(handle)
        await self.tell(handle, f"show {environment[protocol.ENV_SYSTEM_DIR]}/{protocol.PARAMETER_FILE}")
        return self._shown(handle)

    async def write_log(self, handle: JobHandle, line: str) -> None:
        await self.tell(handle, f"print {line}")

    async def report(self, handle: JobHandle, line: str) -> None:
        await self.tell(handle, f"report {line}")

    async def tell(self, handle: JobHandle, order: str) -> None:
        await self._pipes[handle.job_name].tell(order)

    def _shown(self, handle: JobHandle) -> str:
        return (self.attempt(handle.job_name) / "shown").read_text()

    def lag(self, lag: Lag) -> AbstractContextManager[LaggingStorage]:
        return lagging_storage(self.nas, lag)

    # The platform

    @property
    def remote_calls(self) -> int:
        return len(self.service.calls)

    async def start_outage(self) -> None:
        self.service.faults.outage = "refuse"

    async def end_outage(self) -> None:
        self.service.faults.outage = ""


def _id(handle: JobHandle) -> str:
    return str(json.loads(handle.data)["id"])
