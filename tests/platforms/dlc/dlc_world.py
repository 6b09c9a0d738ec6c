"""PAI-DLC as a `World`: the real SDK against the stand-in on a port; its jobs are processes."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, cast

from nni_manager.domain.ids import attempt_directory_of
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.testing import Feature, Recorder, unreachable_keeper
from nni_manager.platforms.dlc import states
from nni_manager.platforms.dlc.config import DlcConfig
from nni_manager.platforms.dlc.platform import FOLDER, DlcPlatform
from tests.fakes.dlc.containers import Containers, Source
from tests.fakes.dlc.jobs import ENDED, Job
from tests.fakes.dlc.server import serving
from tests.fakes.dlc.service import DlcService
from tests.fakes.process import FakeProcess
from tests.platforms.obedient_job import Pipes
from tests.platforms.web_world import TOKEN, WebWorld

KEY_ID, KEY_SECRET = "LTAIexample", "k3y-s3cret"
NAS = "data1nas"
#: Owner of jobs that are not ours.
THEIRS = "somebody else"


class DlcWorld(WebWorld):
    absent: ClassVar[Mapping[Feature, str]] = {
        Feature.EXIT_CODE: "PAI-DLC does not tell the exit code of a job; its runner does",
        Feature.MACHINES: "PAI-DLC hides its machines",
        Feature.HOPELESS_WAITS: "PAI-DLC does not say that a job will never start",
        Feature.TIME_LIMIT: "PAI-DLC has no time limit",
        Feature.ENDING_NOTICE: "PAI-DLC announces nothing",
        Feature.SECOND_RUN: "jobs that PAI-DLC restarts have tests of their own",
        Feature.OVERLOOKED: "tests of its own have that",
        Feature.QUEUE: "PAI-DLC does not say whether a queue intended a preemption",
        Feature.ROOM: "PAI-DLC queues whatever it is given",
    }
    #: In the test of paces, see there: eleven reads, and what it takes to begin two jobs.
    pace = (15, 1.0)
    native_states: ClassVar[Collection[str]] = tuple(states.STATES)
    max_observe_calls = 2

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, cast(FakeProcess, None))
        self.directory_of_test = directory
        self.secrets = (KEY_SECRET, TOKEN)
        self.here, self.there = directory / "nas", directory / "container" / "data"
        self._stack = ExitStack()
        self._replicas: dict[str, Pipes] = {}

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.port = self._stack.enter_context(serving(self.service))
        return self

    def reset(self) -> None:
        self.service = self.make_service()

    def make_service(self) -> DlcService:
        containers = Containers(
            folder=self.directory_of_test / "state" / "containers",
            sources={NAS: Source(folder=self.here, mount=str(self.there))},
        )
        service = DlcService(self.directory_of_test / "state", containers, keys={KEY_ID: KEY_SECRET})
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
            "platform": "dlc",
            "image": "registry.example.test/pai/pytorch:1.6",
            "jobType": "PyTorchJob",
            "podCount": 1,
            "ecsSpec": "ecs.c6.large",
            "region": "cn-hangzhou",
            "workspaceId": "12345",
            "nasDataSourceId": NAS,
            "accessKeyId": KEY_ID,
            "accessKeySecret": KEY_SECRET,
            "localStorageMountPoint": str(self.here),
            "containerStorageMountPoint": str(self.there),
            "endpoint": f"http://127.0.0.1:{self.port}",
            **fields,
        }

    def make(self, **fields: Any) -> DlcPlatform:
        return self.built(self.recorder, **fields)

    def built(self, recorder: Recorder, **changes: Any) -> DlcPlatform:
        host = recorder.host(unreachable_keeper())
        config = DlcConfig.model_validate(self.settings(**changes))
        return DlcPlatform(config, host, list_lag_s=0.3, fresh_s=0.0, loss_apart_s=0.1)

    def make_replicated(self) -> DlcPlatform:
        name = self.job("a").name
        self._replicas[name] = Pipes(self.directory(name) / "replicas" / "replica-1")
        return self.make(podCount=2)

    def make_unauthorised(self) -> DlcPlatform:
        return self.make(accessKeySecret="wr0ng-s3cret")

    def make_pushing(self) -> DlcPlatform:
        self.service.faults.hold = False
        return self.make()

    def state_of(self, native: str) -> JobState:
        return states.job_state(native)

    def pretend(self) -> None:
        self._is_pretended = True
        self.service.faults.pretend_s = 1_000_000.0

    # Jobs

    def directory(self, job_name: str) -> Path:
        """Its folder on the NAS."""
        return self.here / FOLDER / job_name.split("_")[2] / attempt_directory_of(job_name)

    def jobs_of(self, job_name: str) -> list[Job]:
        """Not those of others."""
        return [one for one in self.service.jobs.by_id.values() if one.name == job_name and one.owner != THEIRS]

    def submitted(self, job_name: str) -> list[dict[str, Any]]:
        return [{"id": job.id, "status": job.status} for job in self.jobs_of(job_name)]

    def entry_of(self, job_name: str) -> dict[str, Any]:
        return next(iter(self.submitted(job_name)), {})

    def has_ended(self, entry: dict[str, Any]) -> bool:
        return entry["status"] in ENDED

    async def start_job(self, job_name: str) -> None:
        self.service.release(self.entry_of(job_name)["id"])

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
            "DisplayName": spec.name,
            "JobType": "PyTorchJob",
            "JobSpecs": [role],
            "UserCommand": "exec sleep 1000",
            "WorkspaceId": "12345",
            "Settings": {"Tags": {"nni_experiment": "wasps"}},
        }
        job = Job(id="dlctheirs", request=request, owner=THEIRS, created_s=time.time())
        job.note(job.created_s, "Creating")
        self.service.jobs.put(job)
        self.service.advance()

    async def is_planted(self, spec: JobSpec) -> bool:
        return self.service.jobs.by_id["dlctheirs"].status == "Running"

    async def traces(self, experiment_id: str) -> Collection[str]:
        """Jobs that have ended stay in the console."""
        names = [job.name for job in self.service.jobs.unfinished() if job.owner != THEIRS]
        shared = [str(path) for path in (self.here / FOLDER).glob(f"{experiment_id}/*") if path.is_file()]
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
        await super().end(handle, exit_code)

    async def vanish(self, handle: JobHandle) -> None:
        self.service.vanish(_id(handle))

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
