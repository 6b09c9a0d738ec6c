"""Reports of simulated jobs: a registration, and outbox lines that no file holds."""

from __future__ import annotations

from nni_manager.domain.errors import PlatformUnavailable, VersionRefused
from nni_manager.platform_kit.contract import Host
from nni_manager.platforms.scripted.jobs import Job
from nni_manager.platforms.scripted.script import lines
from trial_runner import protocol


class SimulatedReports:
    """The reports of simulated jobs. `times`: how often each is sent."""

    def __init__(self, host: Host, *, times: int) -> None:
        self._host = host
        self._times = times
        self._registered: set[str] = set()
        #: Bytes stored of each job's outbox, once it is known.
        self._stored: dict[str, int] = {}

    async def tell(self, job: Job, now_ms: int) -> None:
        """Delivers the reports of a job that are due; returns when they are stored.

        Raises PlatformUnavailable and what the store raises.
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
                raise PlatformUnavailable(f"what job {job_name} reported before is not stored; it is told again")
        self._stored[job_name] = end

    async def _stored_bytes(self, job_name: str) -> int:
        if job_name not in self._stored:
            offsets = (await self._host.followed([job_name]))[job_name]
            self._stored[job_name] = offsets.get(protocol.MAIN_OUTBOX, 0)
        return self._stored[job_name]
