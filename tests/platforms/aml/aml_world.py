"""A workspace of Azure ML as a `World`: the stand-in on a port, with jobs that are processes, and its storage."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, cast

from nni_manager.domain.ids import attempt_directory_of
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.testing import Feature, Lag, LaggingStorage, Recorder, unreachable_keeper
from nni_manager.platforms.aml import states
from nni_manager.platforms.aml.account import Tokens
from nni_manager.platforms.aml.config import AmlConfig
from nni_manager.platforms.aml.platform import AmlPlatform
from tests.fakes.aml.server import serving
from tests.fakes.aml.workspace import ENDED, Workspace
from tests.fakes.process import FakeProcess
from tests.platforms.web_world import TOKEN, WebWorld
from tests.waiting import until_async
from trial_runner import protocol

GOOD, WRONG = "entra-t0ken", "entra-wr0ng-token"
RESOURCE = "/subscriptions/s1/resourceGroups/g1/providers/Microsoft.MachineLearningServices/workspaces/w1"

#: Reads a second, and how many may come at once first.
PACE = (30.0, 15)


class GivenTokens(Tokens):
    """In the place of azure-identity: one that is forgotten makes way for the next."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)

    async def token(self, scope: str) -> str:
        return self._tokens[0]

    async def close(self) -> None:
        if len(self._tokens) > 1:
            self._tokens.pop(0)


#: Seconds for which a job is missed before it is lost.
LOSS_APART_S = 0.1


class Signed(AmlPlatform):
    loss_apart_s = LOSS_APART_S
    given: GivenTokens

    def _tokens(self) -> Tokens:
        return self.given


class AmlWorld(WebWorld):
    absent: ClassVar[Mapping[Feature, str]] = {
        Feature.EXIT_CODE: "Azure ML does not tell the exit code of a job; its runner does",
        Feature.MACHINES: "Azure ML hides its machines",
        Feature.HOPELESS_WAITS: "Azure ML does not say that a job will never start",
        Feature.TIME_LIMIT: "jobs here have no time limit",
        Feature.ENDING_NOTICE: "Azure ML announces nothing",
        Feature.SECOND_RUN: "Azure ML runs each job once",
        Feature.OVERLOOKED: "tests of its own have that",
        Feature.QUEUE: "Azure ML gives no place of a running job to another",
        Feature.ROOM: "Azure ML queues whatever it is given",
        Feature.REPLICAS: "a job is one process on one node",
        Feature.WAIT_REASONS: "Azure ML says no more of a job that waits than its status",
    }
    #: Reads, and what it takes to begin two jobs.
    pace = (round(PACE[0] / 2 + PACE[1]) + 10, 0.5)
    native_states: ClassVar[Collection[str]] = tuple(
        re.findall("^([A-Z][A-Za-z]+) +[A-Z]+ ", states.__doc__ or "", re.M)
    )
    max_observe_calls = 2

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, cast(FakeProcess, None))
        self.secrets = (GOOD, WRONG, TOKEN)
        self.workspace = Workspace(directory / "workspace", RESOURCE)
        self._stack = ExitStack()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.server = self._stack.enter_context(serving(self.workspace, [GOOD]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self.workspace.destroy_all()
        self._stack.close()
        for pipes in self._pipes.values():
            pipes.close()

    def reset(self) -> None:
        self.workspace.faults.hold = True

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {
            "platform": "aml",
            "subscriptionId": "s1",
            "resourceGroup": "g1",
            "workspaceName": "w1",
            "computeTarget": "gpu-cluster",
            "dockerImage": "example/trial:1.0",
            "endpoint": self.workspace.address,
            "storageEndpoint": self.workspace.address,
            **changes,
        }

    def make(self, tokens: tuple[str, ...] = (GOOD,), **changes: Any) -> AmlPlatform:
        return self.built(self.recorder, tokens, **changes)

    def built(self, recorder: Recorder, tokens: tuple[str, ...] = (GOOD,), **changes: Any) -> AmlPlatform:
        signed = type("SignedAml", (Signed,), {"given": GivenTokens(*tokens)})
        made: AmlPlatform = signed(
            AmlConfig.model_validate(self.settings(**changes)), recorder.host(unreachable_keeper())
        )
        return made

    def make_unauthorised(self) -> AmlPlatform:
        return self.make((WRONG,))

    def make_pushing(self) -> AmlPlatform:
        self.workspace.faults.hold = False
        return self.make()

    def state_of(self, native: str) -> JobState:
        return states.job_state(native)

    def pretend(self) -> None:
        self._is_pretended = True
        self.workspace.faults.pretend_s = 1_000_000

    def directory(self, job_name: str) -> Path:
        with self.workspace.lock:
            self.workspace.nodes.sync()  # what was closed is there
        place = f"nni-experiments/{job_name.split('_')[2]}/{attempt_directory_of(job_name)}"
        return self.workspace.blobs.folder / place

    def submitted(self, job_name: str) -> list[dict[str, Any]]:
        """Not those of others."""
        return [
            job
            for name, job in self.workspace.jobs.items()
            if name.startswith(job_name) and job["properties"]["tags"].get("owner") != "theirs"
        ]

    def entry_of(self, job_name: str) -> dict[str, Any]:
        return next(iter(self.submitted(job_name)), {})

    async def start_job(self, job_name: str) -> None:
        names = [name for name, job in self.workspace.jobs.items() if name.startswith(job_name) and not _is_theirs(job)]
        self.workspace.release(names[0])

    async def begin(self, handle: JobHandle) -> None:
        """What it holds open, its stdout for one, is in storage only as what its runner copies of it."""
        await self.start_job(handle.job_name)
        if not self._is_pretended:
            folder = self.directory(handle.job_name)
            await until_async(
                lambda: (folder / "starts").exists() and self._pieces(handle, protocol.STDOUT_FILE) is not None
            )

    async def write_log(self, handle: JobHandle, line: str) -> None:
        """Until it is in storage, which is up to the runner's pace."""
        await super().write_log(handle, line)
        await until_async(lambda: line.encode() in (self._pieces(handle, protocol.STDOUT_FILE) or b""))

    def _pieces(self, handle: JobHandle, name: str) -> bytes | None:
        """What storage has of a file that is held open; None: nothing."""
        found = sorted(self.directory(handle.job_name).glob(f"{protocol.PIECES_FOLDER}/*/{name}/*"))
        return b"".join(path.read_bytes() for path in found) if found else None

    async def cancel_in_portal(self, handle: JobHandle) -> None:
        self.workspace.stop(handle.data)

    async def plant(self, spec: JobSpec) -> None:
        properties = {"jobType": "Command", "command": "theirs", "environmentId": "theirs", "tags": {"owner": "theirs"}}
        self.workspace.jobs[spec.name] = {"properties": properties, "status": "Paused", "is_started": False}

    async def is_planted(self, spec: JobSpec) -> bool:
        there = self.workspace.jobs[spec.name]
        return there["status"] == "Paused" and _is_theirs(there)

    async def traces(self, experiment_id: str) -> Collection[str]:
        """Jobs that have ended stay in the studio; code and environments are every experiment's, by their content."""
        jobs = self.workspace.jobs.items()
        ours = [name for name, job in jobs if job["status"] not in ENDED and not _is_theirs(job)]
        return [name for name in ours if name.split("_")[2] == experiment_id]

    @property
    def sessions_seen(self) -> int:
        return 1  # tokens are Entra's

    @property
    def calls_seen(self) -> Sequence[float]:
        return self.workspace.times

    async def start_hanging(self) -> None:
        self.workspace.faults.outage = "hang"

    async def end_hanging(self) -> None:
        self.workspace.faults.outage = ""

    async def lose_answer(self) -> None:
        self.workspace.faults.lost_puts = 1

    def has_ended(self, entry: dict[str, Any]) -> bool:
        return entry["status"] in ENDED

    async def vanish(self, handle: JobHandle) -> None:
        self.workspace.vanish(handle.data)

    @contextmanager
    def lag(self, lag: Lag) -> Iterator[LaggingStorage]:
        """What is listed and read over HTTP is as late as a mounted folder would be, but for handles."""
        storage = LaggingStorage(self.workspace.blobs.folder, lag)
        self.workspace.blobs.storage = storage
        try:
            yield storage
        finally:
            storage.settle()

    @property
    def remote_calls(self) -> int:
        return len(self.workspace.calls)

    async def start_outage(self) -> None:
        self.workspace.faults.outage = "refuse"

    async def end_outage(self) -> None:
        self.workspace.faults.outage = ""


def _is_theirs(job: dict[str, Any]) -> bool:
    return job["properties"]["tags"].get("owner") == "theirs"
