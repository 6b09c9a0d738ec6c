"""A platform in memory that does as it is told."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import ClassVar, Self

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.contract import Capabilities, Host, Platform
from nni_manager.platform_kit.section_model import PlatformSection

RUNNING = Observation(state=JobState.RUNNING, started_ms=5)
SUCCEEDED = Observation(state=JobState.SUCCEEDED, exit_code=0, started_ms=5, ended_ms=9)
KILLED = Observation(state=JobState.FAILED, signal=15, started_ms=5, ended_ms=9)


class FakePlatform(Platform[PlatformSection]):
    """Jobs run until the test ends them; every change is reported to the host."""

    capabilities: ClassVar[Capabilities] = Capabilities(watches=True, reads_files=False, slow_poll_s=20)

    def __init__(self, config: PlatformSection, host: Host) -> None:
        super().__init__(config, host)
        self.jobs: dict[str, Observation] = {}
        self.specs: list[JobSpec] = []
        self.cancelled: list[str] = []
        self.forgotten: list[str] = []
        self.observed: list[list[str]] = []
        #: What the next calls of a verb raise.
        self.raises: dict[str, list[Exception]] = {}
        self.entered = 0
        #: What is said of a job that was submitted.
        self.first_report = RUNNING

    async def __aenter__(self) -> Self:
        self.entered += 1
        self._may_raise("enter")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self.entered -= 1

    async def submit(self, spec: JobSpec) -> JobHandle:
        self._may_raise("submit")
        self.specs.append(spec)
        self.change(spec.name, self.first_report)
        return JobHandle(platform="fake", version=1, job_name=spec.name)

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        self.observed.append(sorted(handle.job_name for handle in handles))
        self._may_raise("observe")
        lost = Observation(state=JobState.LOST)
        return {handle: self.jobs.get(handle.job_name, lost) for handle in handles}

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        self.cancelled += [handle.job_name for handle in handles]
        self._may_raise("cancel")
        for handle in handles:
            if self.jobs.get(handle.job_name) == RUNNING:
                self.change(handle.job_name, KILLED)

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        self._may_raise("forget")
        for handle in handles:
            self.forgotten.append(handle.job_name)
            self.jobs.pop(handle.job_name, None)

    def change(self, name: str, report: Observation) -> None:
        self.jobs[name] = report
        self.host.wake(name)

    def _may_raise(self, verb: str) -> None:
        if self.raises.get(verb):
            raise self.raises[verb].pop(0)
