"""Looks at the jobs of one experiment: those the platform says have changed, and slowly all of them."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping

from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.domain.experiment import Hold, HoldCode
from nni_manager.domain.job import JobHandle, JobReport
from nni_manager.platform_kit.contract import Platform
from nni_manager.store import jobs
from nni_manager.store.database import Database

log = logging.getLogger(__name__)


class Observer:
    """`tell` receives what was seen; what it means is the plan's business."""

    def __init__(
        self, platform: Platform, database: Database, tell: Callable[[Mapping[str, JobReport]], None],
        trouble: Callable[[Hold | None], None], clock: Clock,
    ) -> None:  # fmt: skip
        self._platform = platform
        self._database = database
        self._tell = tell
        self._trouble = trouble
        self._clock = clock
        self._news = asyncio.Event()
        self._changed: set[str] = set()
        self._look_at_all = True
        #: Accepted, undecided jobs of this process; filled from the store by a look at all.
        self._handles: dict[str, JobHandle] = {}
        #: Since when the platform cannot be asked.
        self.unreachable_since_ms: int | None = None

    def wake(self, job_name: str) -> None:
        """Something about this job changed; an empty name means: perhaps about all of them."""
        if job_name:
            self._changed.add(job_name)
        else:
            self._look_at_all = True
        self._news.set()

    def add(self, handle: JobHandle) -> None:
        """A job was accepted: look at it from now on."""
        self._handles[handle.job_name] = handle
        self.wake(handle.job_name)

    def remove(self, job_name: str) -> None:
        self._handles.pop(job_name, None)

    def follow_clock(self, step_ms: int) -> None:
        """The wall clock was set by so much."""
        if self.unreachable_since_ms is not None:
            self.unreachable_since_ms += step_ms

    async def run(self) -> None:
        """Ends only by cancellation."""
        loop = asyncio.get_running_loop()
        while True:
            slow_poll = loop.call_later(self._platform.capabilities.slow_poll_s, self.wake, "")
            try:
                await self._news.wait()
            finally:
                slow_poll.cancel()
            self._news.clear()
            await self.look()

    async def look(self) -> None:
        """One round."""
        if self._look_at_all:
            self._look_at_all = False
            self._handles.update(await self._database.read(_undecided))
            self._changed.update(self._handles)
        names, self._changed = self._changed, set()
        handles = [self._handles[name] for name in names if name in self._handles]
        try:
            reports = await self._platform.observe(handles)
        except PlatformUnavailable as error:
            self._changed |= names
            self._note(Hold(code=HoldCode.PLATFORM_UNAVAILABLE, sentence=str(error)))
        except BadCredentials as error:
            self._changed |= names
            self._note(Hold(code=HoldCode.BAD_CREDENTIALS, sentence=str(error)))
        else:
            self._note(None)
            if reports:
                self._tell({handle.job_name: report for handle, report in reports.items()})

    def _note(self, trouble: Hold | None) -> None:
        was_away = self.unreachable_since_ms is not None
        if trouble is None:
            self.unreachable_since_ms = None
        elif not was_away:
            self.unreachable_since_ms = self._clock()
            log.warning("the platform cannot be asked: %s", trouble.sentence)
        if was_away or trouble is not None:
            self._trouble(trouble)


def _undecided(connection: sqlite3.Connection) -> dict[str, JobHandle]:
    return {handle.job_name: handle for handle in jobs.undecided(connection)}
