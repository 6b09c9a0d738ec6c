"""Observes the jobs of one training service: changed ones at once, and all of them slowly."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobHandle
from nni_manager.platform_kit.contract import Capabilities
from nni_manager.store.database import Database
from nni_manager.store.experiment import jobs

#: Observes jobs; None: the call failed, which was noted already.
Observe = Callable[[Sequence[JobHandle]], Awaitable[Mapping[JobHandle, Observation] | None]]
#: Minimum seconds between two observations of a service without watch, while jobs are being accepted.
_GATHER_S = 1.0
#: Seconds until a new job is observed on a service with watch; short jobs have ended by then.
_FIRST_LOOK_S = 0.05


class Observer:
    """`tell`: called with observations, which the plan decides on."""

    def __init__(
        self,
        *,
        service: str,
        database: Database,
        observe: Observe,
        tell: Callable[[Mapping[str, Observation]], None],
        capabilities: Capabilities,
    ) -> None:
        self._service = service
        self._database = database
        self._observe = observe
        self._tell = tell
        #: Of the current adapter.
        self.capabilities = capabilities
        self._news = asyncio.Event()
        self._changed: set[str] = set()
        self._look_at_all = True
        #: Accepted jobs of open attempts; refilled from the store when all are observed.
        self._handles: dict[str, JobHandle] = {}
        self._pause_s = capabilities.slow_poll_s
        self._looked_s = float("-inf")
        #: The last observation failed.
        self._failed = False
        self._later: asyncio.TimerHandle | None = None

    def wake(self, job_name: str) -> None:
        """The job changed; empty: perhaps any job."""
        if job_name:
            self._changed.add(job_name)
        else:
            self._look_at_all = True
        self._news.set()

    def add(self, handle: JobHandle) -> None:
        """Adds an accepted job, which is observed soon; without watch, several share one call."""
        self._handles[handle.job_name] = handle
        self._changed.add(handle.job_name)
        self._pause_s = min(_GATHER_S, self.capabilities.slow_poll_s)
        now_s = asyncio.get_running_loop().time()
        wait_s = _FIRST_LOOK_S if self.capabilities.watches else self._looked_s + _GATHER_S - now_s
        if wait_s <= 0:
            self._news.set()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(wait_s, self._news.set)

    def remove(self, job_name: str) -> None:
        """Removes a job whose attempt is closed; cancels a first observation without other jobs."""
        self._handles.pop(job_name, None)
        self._changed.discard(job_name)
        if not self._changed:
            self._drop_later()

    async def run(self) -> None:
        """Ends only by cancellation."""
        try:
            while True:
                await self._wait()
                await self.look()
        finally:
            self._drop_later()

    async def _wait(self) -> None:
        """Waits for a change, or until the next observation is due; the pause doubles each time."""
        loop = asyncio.get_running_loop()
        pause_s = self.capabilities.slow_poll_s if self.capabilities.watches and not self._failed else self._pause_s
        begun_s, alarm = loop.time(), loop.call_later(pause_s, self.wake, "")
        try:
            await self._news.wait()
        finally:
            alarm.cancel()
        if loop.time() - begun_s >= pause_s:
            self._pause_s = min(2 * pause_s, self.capabilities.slow_poll_s)
        self._news.clear()
        self._drop_later()

    def _drop_later(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    async def look(self) -> None:
        """Observes the changed jobs, or all that are due; makes no call without any."""
        if self._look_at_all:
            self._look_at_all = False
            self._handles.update(await self._database.read(lambda c: _undecided(c, self._service)))
            self._changed.update(self._handles)
        names, self._changed = self._changed, set()
        handles = [self._handles[name] for name in names if name in self._handles]
        self._looked_s = asyncio.get_running_loop().time()
        if not handles:
            return
        reports = await self._observe(handles)
        if reports is None:
            self._changed |= names
            self._pause_s = self._pause_s if self._failed else min(_GATHER_S, self.capabilities.slow_poll_s)
        self._failed = reports is None
        if reports:
            self._tell({handle.job_name: self._named(handle, report) for handle, report in reports.items()})

    def _named(self, handle: JobHandle, report: Observation) -> Observation:
        """Adds the handle to an observation of a rejected submission, as there may be a newer one; that submission is
        no longer observed."""
        if not (report.is_untaken or report.was_never_taken):
            return report
        if self._handles.get(handle.job_name) is handle:
            self.remove(handle.job_name)
        return replace(report, about=handle)


def _undecided(connection: sqlite3.Connection, service: str) -> dict[str, JobHandle]:
    return {handle.job_name: handle for handle in jobs.undecided(connection, service)}
