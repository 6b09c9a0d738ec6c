"""The jobs of one training service at a keeper: their states, the delivery of their results, and their removal.

States:

=========  ==========================================
keeper     JobState
=========  ==========================================
PREPARING  PENDING
RUNNING    RUNNING
ENDED      SUCCEEDED for exit code 0, FAILED otherwise
LOST       LOST
=========  ==========================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import steady_ms
from nni_manager.domain.errors import PlatformError, PlatformUnavailable
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.platform_kit.contract import Host
from nni_manager.platform_kit.tasks import ended
from trial_runner import protocol

_STATES = {
    protocol.PREPARING: JobState.PENDING,
    protocol.RUNNING: JobState.RUNNING,
    protocol.LOST: JobState.LOST,
}


def job_report(job: Mapping[str, Any]) -> Observation:
    """The observation of a job that the keeper has just reported; `job` as in `trial_runner.protocol`."""
    state = _state(job)
    return Observation(
        state=state,
        exit_code=job.get("exit_code"),
        signal=job.get("signal"),
        stderr_tail=job.get("stderr_tail") or "",
        message=job.get("message") or "",
        started_ms=_moment_ms(job.get("started_ago_ms")),
        ended_ms=_moment_ms(job.get("ended_ago_ms")),
        is_steady=True,
        place=(job.get("reservation") or {}).get("place", ""),
        wait=_wait(job.get("code")),
    )


def _wait(code: Mapping[str, Any] | None) -> Wait | None:
    """Why an accepted job does not run yet."""
    if code is None:
        return None
    done, size = (round(code[name] / 1e6) for name in ("done_bytes", "size_bytes"))
    far = f", {done} of {size} MB" if size else ""
    return Wait(code=WaitCode.SUBMITTED, sentence=f"its code is being {code['step']}{far}")


def _moment_ms(ago_ms: int | None) -> int | None:
    return None if ago_ms is None else steady_ms() - ago_ms


def _state(job: Mapping[str, Any]) -> JobState:
    if job["state"] == protocol.ENDED:
        return JobState.SUCCEEDED if job.get("exit_code") == 0 else JobState.FAILED
    return _STATES.get(job["state"], JobState.UNKNOWN)


class Tell(Protocol):
    def __call__(self, name: str, report: Observation, *, is_news: bool = True) -> None:
        """Notes the current report on the job; `is_news`: wakes the scheduler."""


class Deliveries:
    """Results of one training service's jobs on their way to the scheduler, and the ends that wait for them."""

    def __init__(self, host: Host, tell: Tell) -> None:
        self._host = host
        self._tell = tell
        #: Job → delivered but unstored results, and the end that waits for them.
        self._pending: dict[str, set[asyncio.Task[None]]] = {}
        self._held_ends: dict[str, Observation] = {}

    def add(self, job_name: str, outbox: str, start: int, end: int, lines: list[str]) -> asyncio.Task[None]:
        delivery = asyncio.create_task(
            self._deliver(job_name, outbox, start, end, lines), name=f"results of {job_name}"
        )
        self._pending.setdefault(job_name, set()).add(delivery)
        delivery.add_done_callback(lambda done: self._on_delivered(job_name, done))
        return delivery

    def hold_end(self, job_name: str, report: Observation) -> bool:
        """Whether the job's end is held back until its results are stored."""
        if job_name not in self._pending:
            return False
        self._held_ends[job_name] = report
        return True

    def drop_ends(self) -> None:
        """Drops the ends that wait for results: the next connection reports them again."""
        self._held_ends.clear()

    async def settled(self) -> None:
        """Returns when all delivered results are stored, or have failed."""
        if tasks := self._all():
            await asyncio.wait(tasks)

    async def cancel(self) -> None:
        await ended(*self._all())

    async def _deliver(self, job_name: str, outbox: str, start: int, end: int, lines: list[str]) -> None:
        """Delivers lines to the scheduler.

        Raises if earlier bytes are missing: the next connection continues from the stored offset.
        """
        ended = self._held_ends.get(job_name) if len(self._pending[job_name]) == 1 else None
        delivery = await self._host.deliver(job_name, outbox, start, end, lines, ended)
        if delivery.resend:
            raise PlatformUnavailable(f"job {job_name}: bytes of {outbox} before {start} are not stored")
        if ended is not None and self._held_ends.pop(job_name, None) is not None:
            self._tell(job_name, ended, is_news=False)  # reported with the lines

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


#: Seconds that `send_off` waits for a process that has reported its result and is about to end.
_LAST_MOMENT_S = 2.0

#: Returns which of these jobs the adapter knows; the others are ended.
Known = Callable[[Collection[str]], Awaitable[Collection[str]]]


class KeptJobs(Protocol):
    """The jobs of one training service at their keeper; methods raise PlatformUnavailable."""

    async def listed(self) -> dict[str, dict[str, Any]]:
        """The jobs by name, as the keeper lists them."""

    async def cancel(self, names: Sequence[str], grace_s: float) -> None:
        """Asks the jobs to end."""

    async def request(self, verb: str, **arguments: Any) -> Any:
        """Sends the keeper a request and returns the answer."""


class ForgottenJobs:
    """Jobs of one training service that are being forgotten; it contains those that have not ended yet."""

    def __init__(self, jobs: KeptJobs, known: Known | None) -> None:
        self._jobs = jobs
        self._known = known
        self._names: set[str] = set()
        self._gone = asyncio.Event()
        self._sweeping: set[asyncio.Task[None]] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    async def send_off(self, names: Sequence[str]) -> None:
        """Ends running ones of the jobs, and waits a moment for that."""
        if not names:
            return
        self._names.update(names)  # before the request: an end is reported once, perhaps meanwhile
        jobs = await self._jobs.listed()
        alive = (protocol.PREPARING, protocol.RUNNING)
        running = {name for name in names if name in jobs and jobs[name]["state"] in alive}
        self._names -= set(names) - running
        await self._end(running & self._names)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_MOMENT_S):
                while running & self._names:
                    self._gone.clear()
                    await self._gone.wait()

    async def end_unknown(self) -> None:
        """Ends, on a new connection, jobs that are unknown here or were forgotten while they ran."""
        if self._known is None and not self._names:
            return
        jobs = await self._jobs.listed()
        known = await self._known(jobs) if self._known is not None else jobs
        self._names = {name for name in jobs if name in self._names or name not in known}
        await self._end(self._names)

    def note_end(self, name: str, wake: Callable[[str], None]) -> None:
        """Makes the keeper forget a job without processes, its last record. `wake`: called afterwards."""
        self._names.discard(name)
        self._gone.set()
        task = asyncio.create_task(self._forget(name, wake), name=f"forget {name}")
        self._sweeping.add(task)
        task.add_done_callback(self._sweeping.discard)

    async def cancel(self) -> None:
        """Cancels the tasks; the next connection finds jobs that are not forgotten yet."""
        await ended(*self._sweeping)

    async def _end(self, names: Collection[str]) -> None:
        """Stops the jobs and queries their ends, which may have been reported before this connection."""
        if names:
            await self._jobs.cancel(sorted(names), 0)
            await self._jobs.request("follow", jobs={name: {} for name in names})

    async def _forget(self, name: str, wake: Callable[[str], None]) -> None:
        with suppress(PlatformError):  # the next connection finds it again
            await self._jobs.request("forget", names=[name])
            wake(name)
