"""An account of the fake DLWorkspace dashboard as a `World`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

from nni_manager.domain.job import JobHandle, JobState
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import Feature, Recorder, unreachable_keeper
from nni_manager.platforms.dlts import states
from nni_manager.platforms.dlts.account import DltsAccount
from nni_manager.platforms.dlts.config import DltsConfig
from nni_manager.platforms.dlts.job import ids_of
from nni_manager.platforms.dlts.platform import DltsPlatform
from nni_manager.web_services.pacing import Pacing
from tests.fakes.process import FakeProcess
from tests.platforms.web_world import TOKEN, WebWorld

EMAIL, TEAM, PASSWORD, WRONG = "alice@example.com", "platform", "dlts-passw0rd-of-alice", "dlts-wr0ng-passw0rd"


#: Seconds for which a job is missed before it is lost.
MISSED_S = 0.1


class Impatient(DltsPlatform):
    """Asks as often as it likes."""

    loss_apart_s = MISSED_S

    def _account(self) -> DltsAccount:
        limits = {"all": Pacing(calls=40, per_s=1, burst=20)}
        config = self.config
        return DltsAccount(
            config.dashboard, config.cluster, config.team or "", config.email or "", limits=limits, fresh_s=0.02
        )


class DltsWorld(WebWorld):
    native_states = tuple(re.findall(r"([a-z]+) +(?:PENDING|RUNNING|SUCCEEDED|FAILED|CANCELLED)", states.__doc__ or ""))
    max_observe_calls = 2
    pace = (40, 0.5)
    absent: ClassVar[Mapping[Feature, str]] = {
        Feature.MACHINES: "DLWorkspace hides its machines",
        Feature.HOPELESS_WAITS: "DLWorkspace does not say that a job will never start",
        Feature.TIME_LIMIT: "DLWorkspace has no time limit",
        Feature.ENDING_NOTICE: "DLWorkspace announces nothing",
        Feature.SECOND_RUN: "DLWorkspace runs each job once",
        Feature.OVERLOOKED: "tests of its own have that",
        Feature.QUEUE: "DLWorkspace does not say why a job was preempted",
        Feature.ROOM: "DLWorkspace queues whatever it is given",
        Feature.EXIT_CODE: "DLWorkspace tells no exit codes",
        Feature.REPLICAS: "a trial is one process",
        Feature.FOREIGN_JOBS: "ids of jobs are ours to choose, and hold the experiment's nonce",
    }

    def __init__(self, directory: Path, fake: FakeProcess) -> None:
        super().__init__(directory, fake)
        self.secrets = (PASSWORD, WRONG, TOKEN)

    def reset(self) -> None:
        self.set_password("reset", PASSWORD)
        self.fake.control("behaviour", hold=True)

    def set_password(self, verb: str, password: str) -> None:
        users = {EMAIL: {"password": password, "teams": [TEAM]}}
        self.fake.control(verb, users=users, mounts=[[str(self.here), str(self.there)]])

    def share_home(self) -> None:
        """As where the manager itself runs in a job of the cluster: pods see its folder under the same path."""
        home = str(self.recorder.folder)
        self.fake.control("users", mounts=[[home, home]])

    def built(self, recorder: Recorder, **changes: Any) -> DltsPlatform:
        settings = {
            "platform": "dlts",
            "dashboard": f"{self.fake.address}/",
            "cluster": ".default",
            "team": TEAM,
            "email": EMAIL,
            "password": PASSWORD,
            "dockerImage": "example/image:1",
            "localStorageMountPoint": str(self.here),
            "containerStorageMountPoint": str(self.there),
            **changes,
        }
        return Impatient(DltsConfig.model_validate(settings), recorder.host(unreachable_keeper()))

    def make(self, **changes: Any) -> DltsPlatform:
        return self.built(self.recorder, **changes)

    def make_unauthorised(self) -> Platform[Any]:
        return self.make(password=WRONG)

    def make_pushing(self) -> Platform[Any]:
        self.fake.control("behaviour", hold=False)
        return self.make()

    def state_of(self, native: str) -> JobState:
        return states.job_state(native)

    def submitted(self, job_name: str) -> list[dict[str, Any]]:
        pattern = ids_of(job_name.split("_")[2], job_name)
        return [job for job in self.fake.control("jobs") if pattern.fullmatch(job["jobId"])]

    def entry_of(self, job_name: str) -> dict[str, Any]:
        return next(iter(self.submitted(job_name)), {})

    def has_ended(self, entry: dict[str, Any]) -> bool:
        return entry["jobStatus"] in ("finished", "failed", "killed", "error")

    async def start_job(self, job_name: str) -> None:
        self.fake.control("begin", id=self.entry_of(job_name)["jobId"])

    async def vanish(self, handle: JobHandle) -> None:
        self.fake.control("remove", id=handle.data)

    async def hold_back(self, handle: JobHandle, number: int) -> str:
        word = ("unapproved", "paused")[number]
        self.fake.control("status", id=handle.data, status=word)
        return word

    async def begin(self, handle: JobHandle) -> None:
        self.fake.control("status", id=handle.data, status="")
        await super().begin(handle)

    async def cancel_in_portal(self, handle: JobHandle) -> None:
        self.fake.control("kill", id=handle.data)

    @property
    def sessions_seen(self) -> int:
        """It has no login: connections."""
        return len({request[-1] for request in self.fake.control("requests")})

    async def traces(self, experiment_id: str) -> Collection[str]:
        """DLWorkspace has no call that removes a job: those that have ended stay in its database."""
        jobs = [job for job in self.fake.control("jobs") if job["jobId"].startswith(f"nni-{experiment_id}-")]
        return [job["jobId"] for job in jobs if not self.has_ended(job)] + self.shared_files(experiment_id)
