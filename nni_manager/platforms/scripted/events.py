"""Events of the scripted cluster, sent by timers, optionally twice; and reports of simulated jobs: a registration and
outbox lines without a file."""

from __future__ import annotations

import asyncio

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import PlatformUnavailable, VersionRefused
from nni_manager.platform_kit.contract import Host
from nni_manager.platforms.scripted.jobs import Job
from nni_manager.platforms.scripted.states import lines
from trial_runner import protocol


class Events:
    """The events of jobs. `is_doubled`: each is sent twice, and the previous state is repeated after a change."""

    def __init__(self, host: Host, *, is_doubled: bool) -> None:
        self._host = host
        self._is_doubled = is_doubled
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._reported: dict[str, Observation] = {}
        self._stale: dict[str, Observation] = {}

    def wake(self, job_name: str) -> None:
        for _ in range(2 if self._is_doubled else 1):
            self._host.wake(job_name)

    def wake_in(self, job_name: str, milliseconds: int) -> None:
        """Wakes a job after a number of milliseconds; replaces its earlier timer."""
        self._cancel(job_name)
        loop = asyncio.get_running_loop()
        self._timers[job_name] = loop.call_later(milliseconds / 1000, self.wake, job_name)

    def tell(self, job_name: str, report: Observation) -> Observation:
        """The job's report for a query."""
        if not self._is_doubled:
            return report
        if (stale := self._stale.pop(job_name, None)) is not None:
            self.wake(job_name)
            return stale
        before = self._reported.get(job_name)
        self._reported[job_name] = report
        if before is not None and before != report:
            self._stale[job_name] = before
            self.wake(job_name)
        return report

    def forget(self, job_name: str) -> None:
        self._cancel(job_name)
        self._reported.pop(job_name, None)
        self._stale.pop(job_name, None)

    def close(self) -> None:
        for job_name in list(self._timers):
            self._cancel(job_name)

    def _cancel(self, job_name: str) -> None:
        if (timer := self._timers.pop(job_name, None)) is not None:
            timer.cancel()


class SimulatedReports:
    """The reports of simulated jobs. `times`: how often each is sent."""

    def __init__(self, host: Host, *, times: int) -> None:
        self._host = host
        self._times = times
        self._registered: set[str] = set()
        #: Stored bytes of each job's outbox, once known.
        self._stored: dict[str, int] = {}

    async def tell(self, job: Job, now_ms: int) -> None:
        """Delivers the due reports of a job; returns when they are stored.

        Raises PlatformUnavailable and the store's errors.
        """
        if now_ms >= job.starts_ms:
            await self._register(job)
        await self._deliver(job, now_ms)

    def forget(self, job_name: str) -> None:
        self._stored.pop(job_name, None)
        self._registered.discard(job_name)

    async def _register(self, job: Job) -> None:
        if job.rule.runner_version is None or job.name in self._registered:
            return
        self._registered.add(job.name)
        try:
            await self._host.register(job.name, job.rule.runner_version, "")
        except VersionRefused:
            return  # the host has recorded the attempt's end

    async def _deliver(self, job: Job, now_ms: int) -> None:
        stored = await self._stored_bytes(job.name)
        end = 0
        for line in lines(job.rule):
            start, end = end, end + len(line.text.encode()) + 1
            if end > stored and job.starts_ms + line.after_ms <= now_ms:
                await self._deliver_line(job.name, line.text, start, end)

    async def _deliver_line(self, job_name: str, text: str, start: int, end: int) -> None:
        for _ in range(self._times):
            delivery = await self._host.deliver(job_name, protocol.MAIN_OUTBOX, start, end, [text])
            if delivery.resend:
                self._stored.pop(job_name, None)
                raise PlatformUnavailable(f"an earlier report of job {job_name} is not stored yet; sending it again")
        self._stored[job_name] = end

    async def _stored_bytes(self, job_name: str) -> int:
        if job_name not in self._stored:
            offsets = await self._host.stored(job_name)
            self._stored[job_name] = offsets.get(protocol.MAIN_OUTBOX, 0)
        return self._stored[job_name]
