"""Asks platforms to remove the jobs of closed attempts, once they have reported how these ended.

A runner's exit report closes an attempt before its platform reports the end, which may take seconds. The platform's
report then does not change the outcome, but it is stored, and a contradiction between the two is logged. Logs of remote
jobs are read from their service while it keeps them; the end of each is copied here first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import NotFound, PlatformUnavailable
from nni_manager.domain.evidence import RunnerExit, weigh
from nni_manager.domain.ids import attempt_directory_of
from nni_manager.domain.job import JobHandle
from nni_manager.platform_kit.payload import write_private
from nni_manager.platform_kit.tasks import happened
from nni_manager.scheduler.planning.decisions import Forget
from nni_manager.scheduler.turns.observer import Observer
from nni_manager.store.experiment import jobs
from trial_runner.protocol import LOG_FILES, STDOUT_FILE
from trial_runner.wire.backoff import Backoff

log = logging.getLogger(__name__)

#: Seconds to wait for the platform's report after the runner's; a platform that polls gets its interval besides.
PATIENCE_S = 10.0
#: Maximum seconds for which a job is kept while its runner still delivers logs.
LOGS_S = 300.0
#: Seconds for which ended jobs are collected for one forget call; each call syncs the database to the disk first.
GATHER_S = 1.0
#: Seconds after a failed call; the last value repeats.
_RETRY_WAITS_S = (1.0, 5.0, 30.0, 120.0)
#: Maximum seconds that a closing experiment waits for this.
_LAST_MOMENT_S = 1.0


class Forgetting:
    """Asks one training service to forget jobs: one task while there are any, and one call for several.

    `forget`, `observe`: calls of the service; `forgotten`: called with the names of forgotten jobs; `late`: called with
    the ends found by the last observation before a forget call, by name, and with these names.
    """

    def __init__(
        self,
        forget: Callable[[Sequence[JobHandle]], Awaitable[None]],
        observe: Callable[[Sequence[JobHandle]], Awaitable[Mapping[JobHandle, Observation]]],
        observer: Observer,
        forgotten: Callable[[Sequence[str]], None],
        late: Callable[[Mapping[str, Observation], Collection[str]], None],
    ) -> None:
        self._forget_there = forget
        self._observe = observe
        self._forgotten = forgotten
        self._late = late
        self._observer = observer
        #: None: the service is not connected; on connect, the jobs to forget are read from the store.
        self._group: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready: list[Forget] = []
        #: By name: jobs without a final report of their platform, and until when it is awaited.
        self._unheard: dict[str, tuple[Forget, float]] = {}
        #: By name: latest time to which that may be extended.
        self._limits: dict[str, float] = {}
        self._news = asyncio.Event()
        #: The experiment is closing: jobs are forgotten at once.
        self._closing = asyncio.Event()
        self._backoff = Backoff(_RETRY_WAITS_S)

    def enter(self, group: asyncio.TaskGroup) -> None:
        """Works in `group` from now on, and drops the jobs of an earlier one."""
        self._group, self._task = group, None
        self._closing.clear()
        self._ready.clear()
        self._unheard.clear()
        self._limits.clear()

    def leave(self) -> None:
        """Called when the service is disconnected."""
        self._group = self._task = None

    def add(self, jobs: Iterable[Forget]) -> None:
        """Adds jobs to forget. Returns at once."""
        for job in jobs:
            if job.runner_exit:
                now = asyncio.get_running_loop().time()
                self._unheard[job.handle.job_name] = job, now + self._patience_s()
                self._limits[job.handle.job_name] = now + LOGS_S
                self._observer.add(job.handle)  # it may have reported meanwhile
            else:
                self._be_ready(job)
        self._go_on()

    def hear(self, reports: Mapping[str, Observation]) -> frozenset[str]:
        """Handles observations: a closed job can be forgotten once the platform confirms its end. Returns the names of
        jobs of closed attempts."""
        decided = frozenset(self._unheard.keys() & reports.keys())
        for name in decided:
            if reports[name].state.is_final:
                job, _ = self._unheard.pop(name)
                _compare(job, reports[name])
                self._be_ready(replace(job, runner_exit=""))
                self._go_on()
        return decided

    def wait_longer(self, job_name: str) -> None:
        """Extends the wait for a job whose runner still delivers. Ignores other jobs."""
        if job_name in self._unheard:
            job, until = self._unheard[job_name]
            later = min(asyncio.get_running_loop().time() + self._patience_s(), self._limits[job_name])
            self._unheard[job_name] = job, max(until, later)

    async def finish(self) -> None:
        """Forgets all jobs without waiting for reports; waits a moment for the platform's answer."""
        for job, _ in self._unheard.values():
            self._be_ready(job)
        self._unheard.clear()
        self._closing.set()
        self._go_on()
        if (task := self._task) is not None:
            await asyncio.wait({task}, timeout=_LAST_MOMENT_S)
            task.cancel()

    def _patience_s(self) -> float:
        there = self._observer.capabilities
        return PATIENCE_S if there.watches else PATIENCE_S + there.slow_poll_s

    def _be_ready(self, job: Forget) -> None:
        self._limits.pop(job.handle.job_name, None)
        self._ready.append(job)
        self._observer.remove(job.handle.job_name)

    def _go_on(self) -> None:
        self._news.set()
        if self._group is not None and self._task is None and (self._ready or self._unheard):
            self._task = self._group.create_task(self._run(), name="forget")

    async def _run(self) -> None:
        while self._ready or self._unheard:
            if self._ready:
                await happened(self._closing, asyncio.timeout(GATHER_S))
                await self._forget_ready()
            else:
                await self._wait()
        self._task = None

    async def _forget_ready(self) -> None:
        jobs, self._ready = self._ready, []
        if await self._forget(jobs):
            self._backoff.reset()
        elif not self._closing.is_set():
            self._ready = [*jobs, *self._ready]
            await happened(self._closing, asyncio.timeout(self._backoff.next_wait()))

    async def _wait(self) -> None:
        """Waits for new jobs, or until the wait for a report ends."""
        self._news.clear()
        await happened(self._news, asyncio.timeout_at(min(until for _, until in self._unheard.values())))
        now = asyncio.get_running_loop().time()
        for name in [name for name, (_, until) in self._unheard.items() if until <= now]:
            self._be_ready(self._unheard.pop(name)[0])

    async def _forget(self, jobs: Sequence[Forget]) -> bool:
        """Returns whether the call succeeded. Jobs left at the end are retried when the loop starts again."""
        try:
            await self._ask_once_more([job for job in jobs if job.runner_exit])
            await self._forget_there([job.handle for job in jobs])
        except Exception as error:
            if not self._backoff.failures:
                log.warning("%d ended jobs could not be forgotten yet: %s", len(jobs), error)
            return False
        self._forgotten([job.handle.job_name for job in jobs])
        return True

    async def _ask_once_more(self, jobs: Sequence[Forget]) -> None:
        if jobs:
            reports = await self._observe([job.handle for job in jobs])
            for job in jobs:
                _compare(job, reports[job.handle])
            ends = {handle.job_name: report for handle, report in reports.items() if report.state.is_final}
            self._late(ends, ends)


def _compare(job: Forget, report: Observation) -> None:
    finding = weigh(report, RunnerExit.parse(job.runner_exit)) if report.state.is_final else None
    if finding is not None and finding.disagreement:
        log.warning("Job %s: %s", job.handle.job_name, finding.disagreement, extra={"action": "disagreement"})


def to_forget(connection: sqlite3.Connection, service: str) -> list[Forget]:
    """The jobs that a service may forget, with the runner's exit report if the end is not confirmed."""
    runner_exits = jobs.unconfirmed(connection)
    handles = jobs.unforgotten(connection, service)
    return [
        Forget(handle=handle, service=service, runner_exit=runner_exits.get(handle.job_name, "")) for handle in handles
    ]


#: As `Platform.read_file`.
ReadFile = Callable[[JobHandle, str, int, int], Awaitable[bytes]]
#: Number of bytes copied from the end of each log.
KEPT_BYTES = 1024 * 1024


async def keep_logs(trials: Path, handles: Sequence[JobHandle], read_file: ReadFile, most_bytes: int) -> None:
    """Copies the end of each log into the attempts' folders below `trials`, unless keeper or runner wrote them.

    `most_bytes`: for all logs of an attempt. Raises PlatformUnavailable; after other failures the log is missing.
    """
    each = min(KEPT_BYTES, most_bytes // len(LOG_FILES))
    for handle in await asyncio.to_thread(_without_logs, trials, handles):
        for name in LOG_FILES:
            try:
                data = await read_file(handle, name, -each, each)
                kept = trials / attempt_directory_of(handle.job_name) / name
                await asyncio.to_thread(write_private, kept, data[-each:])
            except NotFound:
                continue
            except PlatformUnavailable:
                raise
            except Exception as error:  # a missing log must not prevent forgetting
                log.warning("%s of job %s was not copied: %s", name, handle.job_name, error)


def _without_logs(trials: Path, handles: Sequence[JobHandle]) -> list[JobHandle]:
    """The jobs without a local stdout file, which keeper and runner write first."""
    return [one for one in handles if not os.path.lexists(trials / attempt_directory_of(one.job_name) / STDOUT_FILE)]


async def log_size(handle: JobHandle, name: str, read_file: ReadFile) -> int:
    """Size of a log in bytes: one read for small logs, a search for large ones. Raises NotFound,
    PlatformUnavailable."""
    tail = len(await read_file(handle, name, -KEPT_BYTES, KEPT_BYTES))
    if tail < KEPT_BYTES:
        return tail
    low, high = 0, 2 * KEPT_BYTES  # the end is not before `low`
    while (found := len(await read_file(handle, name, high, KEPT_BYTES))) == KEPT_BYTES:
        low, high = high, 2 * high
    while not found and high - low > KEPT_BYTES:
        middle = (low + high) // 2
        found = len(await read_file(handle, name, middle, KEPT_BYTES))
        if found == KEPT_BYTES:
            low, found = middle, 0
        else:
            high = middle
    return high + found if found else low + len(await read_file(handle, name, low, 2 * KEPT_BYTES))
