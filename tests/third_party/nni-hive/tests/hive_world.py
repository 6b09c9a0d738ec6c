"""A Hive as a `World`: jobs are led as those of a real service are, and the rest its control port does."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from hive import TOKEN, Hive, section

from nni_manager.domain.experiment import PlatformSpec
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import Feature, LedWorld, Recorder

_WRONG = "not-the-honey-pot"
_HELD = "waits to be started"


class HiveWorld(LedWorld):
    pace = (20, 1.0)
    max_observe_calls = 1
    native_states: ClassVar[Collection[str]] = ("queued", "running", "done", "failed", "stopped")

    #: Runs for all tests of a module, and is reset for each.
    hive: ClassVar[Hive]

    def __init__(self, directory: Path) -> None:
        self.hive.act("reset")
        super().__init__(directory, PlatformSpec(name="hive", service="hive", settings=section(self.hive)))
        self.absent = {
            Feature.STORAGE: "a Hive shares no storage",
            Feature.HOPELESS_WAITS: "a Hive starts every job some day",
            Feature.TIME_LIMIT: "a Hive has no time limit",
            Feature.ENDING_NOTICE: "a Hive announces nothing",
            Feature.SECOND_RUN: "a Hive runs each job once",
            Feature.OVERLOOKED: "a Hive lists every job that it has",
            Feature.QUEUE: "a Hive takes no job's place",
            Feature.MACHINES: "a Hive hides its machines",
            Feature.REPLICAS: "a job of a Hive is one process",
        }  # type: ignore[misc]
        self.secrets = (TOKEN, _WRONG, "the-token-of-this-attempt")
        self._experiments = {self.recorder.experiment_id: self.recorder}

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self._act("held", why=_HELD)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        await self._act("reset")
        await self.leave()

    # The adapter

    def make_unauthorised(self) -> Platform[Any]:
        return self.made(self.recorder, section(self.hive, _WRONG))

    def make_pushing(self) -> Platform[Any]:
        return self.make()

    def make_of(self, recorder: Recorder) -> Platform[Any]:
        self._experiments[recorder.experiment_id] = recorder
        return self.made(recorder, section(self.hive))

    def state_of(self, native: str) -> JobState:
        from nni_hive import states

        return states.job_state(native)

    # Jobs

    def pushing_job(self, trial_id: str, command: str, runner_environment: Mapping[str, str]) -> JobSpec:
        self.hive.act("held", why="")
        return dataclasses.replace(self.job(trial_id), command=command, runner_environment=runner_environment)

    async def begin(self, handle: JobHandle) -> None:
        await self._act("start", name=handle.job_name)
        await super().begin(handle)

    async def vanish(self, handle: JobHandle) -> None:
        await self._act("remove", name=handle.job_name)

    async def count(self, job_name: str) -> int:
        """How often it was started, or will be."""
        job = (await self._act("jobs")).get(job_name)
        is_ours = job is not None and job["group"] in self._experiments
        return max(1, int(job["starts"])) if is_ours else 0

    async def hold_back(self, handle: JobHandle, number: int) -> str:
        sentence = f"{number + 3} other jobs are before it"
        await self._act("held", why=sentence)
        return sentence

    async def cancel_in_portal(self, handle: JobHandle) -> None:
        await self._act("stop", name=handle.job_name)

    async def plant(self, spec: JobSpec) -> None:
        entry = {"group": "wasps", "tag": "theirs", "command": ["sh", "job.sh"], "grace_s": 1.0, "environment": {}}
        await self._act("put", name=spec.name, entry=entry)

    async def is_planted(self, spec: JobSpec) -> bool:
        job = (await self._act("jobs")).get(spec.name, {})
        return (job.get("group"), job.get("state")) == ("wasps", "running")

    # The platform

    @property
    def remote_calls(self) -> int:
        return len(self.hive.log())

    @property
    def calls_seen(self) -> Sequence[float]:
        return [moment for moment, _ in self.hive.log()]

    @property
    def sessions_seen(self) -> int:
        return self.hive.logins

    async def start_outage(self) -> None:
        await self._act("away", **{"is": True})

    async def end_outage(self) -> None:
        await self._act("away", **{"is": False})

    async def start_shortage(self) -> None:
        await self._act("full", **{"is": True})

    async def end_shortage(self) -> None:
        await self._act("full", **{"is": False})

    async def start_hanging(self) -> None:
        await self._act("hangs", **{"is": True})

    async def end_hanging(self) -> None:
        await self._act("hangs", **{"is": False})

    async def lose_answer(self) -> None:
        await self._act("lose")

    async def traces(self, experiment_id: str) -> Collection[str]:
        found: list[str] = await self._act("traces", group=experiment_id)
        return found

    async def _act(self, verb: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(self.hive.act, verb, **arguments)
