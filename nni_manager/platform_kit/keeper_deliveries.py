"""Results that a keeper has sent and that are not stored yet, and the ends of jobs that wait for them."""

from __future__ import annotations

import asyncio
from typing import Protocol

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.job import JobReport
from nni_manager.platform_kit.contract import Host


class Tell(Protocol):
    def __call__(self, name: str, report: JobReport, *, is_news: bool = True) -> None:
        """This is known of the job now; `is_news`: somebody should look at it."""


class Deliveries:
    """Of one training service."""

    def __init__(self, host: Host, tell: Tell) -> None:
        self._host = host
        self._tell = tell
        #: By job: results handed over and not stored yet, and the end that waits for them.
        self._pending: dict[str, set[asyncio.Task[None]]] = {}
        self._held_ends: dict[str, JobReport] = {}

    def add(self, job_name: str, outbox: str, start: int, end: int, lines: list[str]) -> asyncio.Task[None]:
        delivery = asyncio.create_task(
            self._deliver(job_name, outbox, start, end, lines), name=f"results of {job_name}"
        )
        self._pending.setdefault(job_name, set()).add(delivery)
        delivery.add_done_callback(lambda done: self._on_delivered(job_name, done))
        return delivery

    def hold_end(self, job_name: str, report: JobReport) -> bool:
        """Whether it waits for results, after which it is told."""
        if job_name not in self._pending:
            return False
        self._held_ends[job_name] = report
        return True

    def drop_ends(self) -> None:
        """The next connection tells of them again."""
        self._held_ends.clear()

    async def settled(self) -> None:
        """All that was handed over is stored, or is not going to be."""
        if tasks := self._all():
            await asyncio.wait(tasks)

    async def cancel(self) -> None:
        tasks = self._all()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _deliver(self, job_name: str, outbox: str, start: int, end: int, lines: list[str]) -> None:
        """Raises when a stretch before these lines is missing: the next connection follows from what is stored."""
        ended = self._held_ends.get(job_name) if len(self._pending[job_name]) == 1 else None
        delivery = await self._host.deliver(job_name, outbox, start, end, lines, ended)
        if delivery.resend:
            raise PlatformUnavailable(f"job {job_name}: what {outbox} holds before byte {start} is not stored")
        if ended is not None and self._held_ends.pop(job_name, None) is not None:
            self._tell(job_name, ended, is_news=False)  # told with the lines

    def _on_delivered(self, job_name: str, delivery: asyncio.Task[None]) -> None:
        pending = self._pending[job_name]
        pending.discard(delivery)
        if not pending:
            del self._pending[job_name]
        if delivery.cancelled() or delivery.exception() is not None:
            self._held_ends.pop(job_name, None)
        elif not pending and job_name in self._held_ends:
            self._tell(job_name, self._held_ends.pop(job_name))

    def _all(self) -> set[asyncio.Task[None]]:
        return set().union(*self._pending.values())
