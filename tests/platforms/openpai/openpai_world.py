"""An account of the fake OpenPAI cluster as a `World`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

import httpx
import yaml

from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import Feature, Recorder, unreachable_keeper
from nni_manager.platforms.openpai import states
from nni_manager.platforms.openpai.account import OpenpaiAccount
from nni_manager.platforms.openpai.config import OpenpaiConfig
from nni_manager.platforms.openpai.platform import OpenpaiPlatform
from nni_manager.web_services.pacing import Pacing
from tests.fakes.process import FakeProcess
from tests.platforms.obedient_job import Pipes
from tests.platforms.web_world import TOKEN, WebWorld

USER, SECRET, PASSWORD, WRONG = "alice", "pai-t0ken-of-alice", "pai-passw0rd", "pai-wr0ng-token"
STORAGE = "team-nfs"
#: Experiment of a foreign job.
THEIRS = "another"


#: Seconds for which a job is missed before it is lost.
LOSS_APART_S = 0.1


class Impatient(OpenpaiPlatform):
    """Asks as often as it likes, and soon believes that a job is gone."""

    loss_apart_s = LOSS_APART_S

    def _account(self) -> OpenpaiAccount:
        limits = {"all": Pacing(calls=40, per_s=1, burst=20)}
        return OpenpaiAccount(self.config.host, self.config.username, limits=limits, fresh_s=0.02)


class OpenpaiWorld(WebWorld):
    native_states = tuple(
        word for word in re.findall(r"^    ([A-Z]+) ", states.__doc__ or "", re.M) if word != "UNKNOWN"
    )
    max_observe_calls = 2
    pace = (40, 0.5)
    absent: ClassVar[Mapping[Feature, str]] = {
        Feature.MACHINES: "OpenPAI hides its machines",
        Feature.HOPELESS_WAITS: "OpenPAI does not say that a job will never start",
        Feature.TIME_LIMIT: "OpenPAI has no time limit",
        Feature.ENDING_NOTICE: "OpenPAI announces nothing",
        Feature.SECOND_RUN: "a container that starts again has tests of its own",
        Feature.OVERLOOKED: "tests of its own have that",
        Feature.QUEUE: "OpenPAI does not say whether a queue intended a preemption",
        Feature.ROOM: "OpenPAI queues whatever it is given",
    }

    def __init__(self, directory: Path, fake: FakeProcess) -> None:
        super().__init__(directory, fake)
        self.secrets = (SECRET, PASSWORD, WRONG, TOKEN)
        self._replicas: dict[str, Pipes] = {}

    def reset(self) -> None:
        self.fake.control(
            "reset",
            users={USER: {"tokens": [SECRET], "password": PASSWORD}},
            storages={STORAGE: str(self.here)},
            limits={"list": [100_000, 60], "all": [100_000, 60]},
        )
        self.fake.control("behaviour", hold=True, grace_s=1)

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {
            "platform": "openpai",
            "host": self.fake.address,
            "username": USER,
            "token": SECRET,
            "dockerImage": "example/image:1",
            "trialCpuNumber": 1,
            "trialMemorySize": 512,
            "storageConfigName": STORAGE,
            "localStorageMountPoint": str(self.here),
            "containerStorageMountPoint": str(self.there),
            **changes,
        }

    def make(self, **changes: Any) -> OpenpaiPlatform:
        return self.built(self.recorder, **changes)

    def built(self, recorder: Recorder, **changes: Any) -> OpenpaiPlatform:
        """By password, unless the token is another one."""
        login = {} if "token" in changes else {"token": None, "password": PASSWORD}
        return Impatient(
            OpenpaiConfig.model_validate(self.settings(**login, **changes)), recorder.host(unreachable_keeper())
        )

    def make_replicated(self) -> Platform[Any]:
        role = {
            "instances": 2,
            "dockerImage": "image",
            "commands": ["exec /bin/sh job.sh"],
            "completion": {"minSucceededInstances": -1},
            "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0},
        }
        image = {"type": "dockerimage", "uri": "example/image", "name": "image"}
        job = {"protocolVersion": 2, "name": "x", "type": "job", "prerequisites": [image], "taskRoles": {"main": role}}
        name = self.job("a").name
        self._replicas[name] = Pipes(self.directory(name) / "replicas" / "main-1")
        return self.make(openpaiConfig=job)

    async def report_from(self, handle: JobHandle, replica: int, line: str) -> None:
        pipes = self._replicas if replica else self._pipes
        await pipes[handle.job_name].tell(f"report {line}")

    async def end(self, handle: JobHandle, exit_code: int) -> None:
        if handle.job_name in self._replicas:
            self._replicas.pop(handle.job_name).order(f"exit {exit_code}")
        await super().end(handle, exit_code)

    def make_unauthorised(self) -> Platform[Any]:
        return self.make(token=WRONG)

    def make_pushing(self) -> Platform[Any]:
        self.fake.control("behaviour", hold=False)
        return self.make()

    def state_of(self, native: str) -> JobState:
        return states.job_state(native)

    def submitted(self, job_name: str) -> list[dict[str, Any]]:
        """Not those of others."""
        return [job for job in self._called(job_name) if job["extras"].get("nniManager", {}).get("nonce") != THEIRS]

    def _called(self, job_name: str) -> list[dict[str, Any]]:
        jobs = self.fake.control("jobs")
        return [job for job in jobs if job["name"] == job_name or job["name"].startswith(f"{job_name}_")]

    def entry_of(self, job_name: str) -> dict[str, Any]:
        return next(iter(self.submitted(job_name)), {})

    def has_ended(self, entry: dict[str, Any]) -> bool:
        return entry["completedTime"] is not None

    async def start_job(self, job_name: str) -> None:
        self.fake.control("begin", user=USER, name=self.entry_of(job_name)["name"])

    async def vanish(self, handle: JobHandle) -> None:
        self.fake.control("remove", user=USER, name=self.entry_of(handle.job_name)["name"])

    async def hold_back(self, handle: JobHandle, number: int) -> str:
        word = ("AttemptCreationPending", "AttemptPreparing")[number]
        self.fake.control("state", user=USER, name=self.entry_of(handle.job_name)["name"], subState=word)
        return word

    async def cancel_in_portal(self, handle: JobHandle) -> None:
        self.fake.control("stop", user=USER, name=self.entry_of(handle.job_name)["name"])

    async def plant(self, spec: JobSpec) -> None:
        submit_as(self, spec.name, {"nniManager": {"experiment": "wasps", "nonce": THEIRS}})
        self.fake.control("begin", user=USER, name=spec.name)

    async def is_planted(self, spec: JobSpec) -> bool:
        theirs = [job for job in self._called(spec.name) if job["name"] == spec.name]
        return [job["state"] for job in theirs] == ["RUNNING"]

    @property
    def sessions_seen(self) -> int:
        return sum(path.endswith("/login") for _, _, _, _, path, _ in self.fake.control("requests"))

    async def traces(self, experiment_id: str) -> Collection[str]:
        """OpenPAI has no call that removes a job: those that have ended stay in its list."""
        jobs = [job for job in self.fake.control("jobs") if job["name"].startswith(f"nni_exp_{experiment_id}_")]
        return [job["name"] for job in jobs if job["completedTime"] is None] + self.shared_files(experiment_id)


def users_job(*commands: str, **others: Any) -> dict[str, Any]:
    """A job of protocol 2 with one role of one task."""
    role = {
        "instances": 1,
        "dockerImage": "image",
        "commands": list(commands),
        "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0},
    }
    return {
        "protocolVersion": 2,
        "name": "another name",
        "type": "job",
        "parameters": {"x": "rendered"},
        "prerequisites": [{"type": "dockerimage", "uri": "example/image", "name": "image"}],
        "taskRoles": {"main": role},
        **others,
    }


def submit_as(world: OpenpaiWorld, name: str, extras: dict[str, Any]) -> None:
    """Another user of the same account."""
    role = {
        "instances": 1,
        "dockerImage": "image",
        "commands": ["exec sleep 1000"],
        "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0},
    }
    job = {
        "protocolVersion": 2,
        "name": name,
        "type": "job",
        "taskRoles": {"main": role},
        "extras": extras,
        "prerequisites": [{"type": "dockerimage", "uri": "example/image", "name": "image"}],
    }
    headers = {"Authorization": f"Bearer {SECRET}", "Content-Type": "text/yaml"}
    url = f"{world.fake.address}/rest-server/api/v2/jobs"
    httpx.post(url, content=yaml.safe_dump(job), headers=headers).raise_for_status()
