"""Events of the scripted cluster, sent by timers, and twice where the script says so."""

from __future__ import annotations

import asyncio

from nni_manager.domain.attempt import Observation
from nni_manager.platform_kit.contract import Host


class Events:
    """The events of jobs. `is_doubled`: each comes twice, and after a change the former state is reported once more."""

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
        """Wakes a job after so many milliseconds; replaces its earlier timer."""
        self._cancel(job_name)
        loop = asyncio.get_running_loop()
        self._timers[job_name] = loop.call_later(milliseconds / 1000, self.wake, job_name)

    def tell(self, job_name: str, report: Observation) -> Observation:
        """The report that answers a question about this job."""
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
