"""An account of the fake OpenPAI cluster as a `World`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nni_manager.domain.job import JobHandle, JobState
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.pacing import Pacing
from nni_manager.platform_kit.testing.world import unreachable_keeper
from nni_manager.platforms.openpai import states
from nni_manager.platforms.openpai.account import OpenpaiAccount
from nni_manager.platforms.openpai.platform import OpenpaiPlatform
from tests.fakes.process import FakeProcess
from tests.platforms.web_world import TOKEN, WebWorld

USER, SECRET, WRONG = "alice", "pai-t0ken-of-alice", "pai-wr0ng-token"
STORAGE = "team-nfs"


class Impatient(OpenpaiPlatform):
    """Asks as often as it likes."""

    def _account(self) -> OpenpaiAccount:
        limits = {name: Pacing(calls=1000, per_s=1, burst=1000) for name in ("all", "list", "submit")}
        return OpenpaiAccount(str(self.settings["host"]), USER, limits=limits, fresh_s=0.02)


class OpenpaiWorld(WebWorld):
    native_states = tuple(
        word for word in re.findall(r"^    ([A-Z]+) ", states.__doc__ or "", re.M) if word != "UNKNOWN"
    )
    max_observe_calls = 2

    def __init__(self, directory: Path, fake: FakeProcess) -> None:
        super().__init__(directory, fake)
        self.secrets = (SECRET, WRONG, TOKEN)

    def reset(self) -> None:
        self.fake.control(
            "reset", users={USER: {"tokens": [SECRET], "password": "pai-passw0rd"}}, storages={STORAGE: str(self.here)},
            limits={"list": [100_000, 60], "all": [100_000, 60]},
        )  # fmt: skip
        self.fake.control("behaviour", hold=True)

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {
            "platform": "openpai", "host": self.fake.address, "username": USER, "token": SECRET,
            "dockerImage": "example/image:1", "trialCpuNumber": 1, "trialMemorySize": 512,
            "storageConfigName": STORAGE, "localStorageMountPoint": str(self.here),
            "containerStorageMountPoint": str(self.there), **changes,
        }  # fmt: skip

    def make(self, **changes: Any) -> OpenpaiPlatform:
        return Impatient(self.settings(**changes), self.recorder.host(unreachable_keeper()))

    def make_unauthorised(self) -> Platform:
        return self.make(token=WRONG)

    def make_pushing(self) -> Platform:
        self.fake.control("behaviour", hold=False)
        return self.make()

    def state_of(self, native: str) -> JobState:
        return states.job_state(native)

    def submitted(self, job_name: str) -> list[dict[str, Any]]:
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
