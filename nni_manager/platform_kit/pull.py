"""Takes what trial runners leave in a folder that they share with us: who they are, results, logs, their end.

For clusters that cannot reach the trial listener. No notice of another machine's writes comes through a mounted
folder, so it is polled: soon while something happens, ever more seldom while nothing does. What was read is nobody's
word here: everything goes to the `Host`, with offsets, so that a repeat is harmless.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nni_manager.domain.errors import NniManagerError, VersionRefused
from nni_manager.platform_kit import outbox_file, runner_folder
from nni_manager.platform_kit.contract import Host
from nni_manager.platform_kit.runner_folder import End
from trial_runner import protocol

log = logging.getLogger(__name__)

#: Seconds between two looks at an attempt in which something happens, and at one in which nothing does.
SHORTEST_WAIT_S = 0.5
LONGEST_WAIT_S = 10.0
_GROWTH = 1.5
#: Stretches of results taken in one look at an attempt, so that the others have their turn.
_MOST_STRETCHES = 16


@dataclass(slots=True, kw_only=True)
class _Attempt:
    job_name: str
    folder: Path
    #: Where its logs are copied to.
    logs: Path
    next_at: float
    wait_s: float = SHORTEST_WAIT_S
    #: Bytes stored of each outbox; None: to be asked for.
    offsets: dict[str, int] | None = None
    has_greeted: bool = False
    #: The platform says that the job has ended: without a word about the end it is over then.
    give_up_at: float | None = None
    #: Nothing more is read.
    is_over: bool = False
    trouble: str = ""


class Pull:
    """One per adapter; every method but `run` returns at once."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._attempts: dict[str, _Attempt] = {}
        self._news = asyncio.Event()

    def follow(self, job_name: str, folder: Path, logs: Path) -> None:
        """Reads the attempt's `folder` from now on, and copies its logs to the folder `logs`. Idempotent."""
        if job_name not in self._attempts:
            now = asyncio.get_running_loop().time()
            self._attempts[job_name] = _Attempt(job_name=job_name, folder=folder, logs=logs, next_at=now)
            self._news.set()

    def finish(self, job_name: str, patience_s: float) -> None:
        """The platform says that the job has ended: what is there is read now.

        No longer than `patience_s` is waited for its runner's word about the end. `Host.wake` tells when it is over.
        Quiet for a job that is not followed.
        """
        attempt = self._attempts.get(job_name)
        if attempt is not None and attempt.give_up_at is None and not attempt.is_over:
            attempt.next_at, attempt.wait_s = asyncio.get_running_loop().time(), SHORTEST_WAIT_S
            attempt.give_up_at = attempt.next_at + patience_s
            self._news.set()

    def is_over(self, job_name: str) -> bool:
        """Everything was taken, or will never be; True for a job that is not followed."""
        attempt = self._attempts.get(job_name)
        return attempt is None or attempt.is_over

    def forget(self, job_name: str) -> None:
        """Quiet for one that is not followed."""
        self._attempts.pop(job_name, None)

    def has_started(self, job_name: str) -> bool:
        """Its runner has left its greeting."""
        attempt = self._attempts.get(job_name)
        return attempt is not None and attempt.has_greeted

    async def run(self) -> None:
        """Ends only by cancellation."""
        while True:
            await self.look()
            await self._wait()

    async def look(self) -> None:
        """One round: all attempts whose time has come."""
        now = asyncio.get_running_loop().time()
        for attempt in [one for one in self._attempts.values() if not one.is_over and one.next_at <= now]:
            await self._look_at(attempt)

    async def _wait(self) -> None:
        times = [attempt.next_at for attempt in self._attempts.values() if not attempt.is_over]
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(times, default=None)):
                await self._news.wait()
        self._news.clear()

    async def _look_at(self, attempt: _Attempt) -> None:
        grown_s = min(LONGEST_WAIT_S, _GROWTH * attempt.wait_s)
        try:
            stretches, has_news = await self._read(attempt)
            attempt.trouble = ""
        except (NniManagerError, OSError) as error:
            stretches, has_news = 0, False
            self._complain(attempt, error)
        attempt.wait_s = SHORTEST_WAIT_S if has_news else grown_s
        now = asyncio.get_running_loop().time()
        if attempt.give_up_at is not None and now >= attempt.give_up_at and not has_news:
            self._close(attempt)
        attempt.next_at = now + (0.0 if stretches == _MOST_STRETCHES else attempt.wait_s)
        if attempt.give_up_at is not None:
            attempt.next_at = min(attempt.next_at, max(now, attempt.give_up_at))

    def _complain(self, attempt: _Attempt, error: Exception) -> None:
        if str(error) != attempt.trouble:
            log.warning("what job %s left in %s cannot be taken now: %s", attempt.job_name, attempt.folder, error)
        attempt.trouble = str(error)

    async def _read(self, attempt: _Attempt) -> tuple[int, bool]:
        """(stretches of results that were taken, whether anything was new)."""
        end = await asyncio.to_thread(runner_folder.read_end, attempt.folder)  # first: the rest is complete then
        if not attempt.has_greeted and not await self._greet(attempt):
            if end is not None and not end.was_started:  # the command was never started: nothing else will come
                await self._tell_end(attempt, end)
            return 0, False
        is_all = end is not None or attempt.give_up_at is not None
        stretches = await self._take_results(attempt, is_all=is_all)
        copied = await asyncio.to_thread(runner_folder.copy_logs, attempt.folder, attempt.logs)
        if end is not None and stretches < _MOST_STRETCHES:
            await self._tell_end(attempt, end)
        return stretches, bool(stretches or copied)

    async def _greet(self, attempt: _Attempt) -> bool:
        """Whether the runner may be listened to."""
        greeting = await asyncio.to_thread(runner_folder.read_greeting, attempt.folder)
        if greeting is None:
            return False
        try:
            await self._host.greet(attempt.job_name, greeting.version, protocol.PULL)
        except VersionRefused:
            self._close(attempt)
            return False
        attempt.has_greeted = True
        self._host.wake(attempt.job_name)
        return True

    async def _take_results(self, attempt: _Attempt, *, is_all: bool) -> int:
        """How many stretches were handed over, at most `_MOST_STRETCHES`."""
        if attempt.offsets is None:
            attempt.offsets = dict((await self._host.followed([attempt.job_name]))[attempt.job_name])
        count = 0
        for outbox in await asyncio.to_thread(outbox_file.names, attempt.folder):
            while count < _MOST_STRETCHES and await self._take_stretch(attempt, attempt.offsets, outbox, is_all):
                count += 1
        return count

    async def _take_stretch(self, attempt: _Attempt, offsets: dict[str, int], outbox: str, is_all: bool) -> bool:
        stretch = await asyncio.to_thread(
            outbox_file.next_stretch, attempt.folder, outbox, offsets.get(outbox, 0), is_all=is_all
        )
        if stretch is None:
            return False
        delivery = await self._host.deliver(attempt.job_name, outbox, stretch.start, stretch.end, stretch.lines)
        if delivery.resend:
            attempt.offsets = None  # we know less than the store does: it is asked at the next look
            raise OSError(f"what {outbox} holds before byte {stretch.start} is not stored")
        offsets[outbox] = stretch.end
        return True

    async def _tell_end(self, attempt: _Attempt, end: End) -> None:
        tail = "" if end.exit_code == 0 else await asyncio.to_thread(runner_folder.stderr_tail, attempt.folder)
        word = {
            "exitCode": end.exit_code, "signal": end.signal, "stderrTail": tail, "startedMs": end.started_ms,
            "endedMs": end.ended_ms, "outboxes": attempt.offsets or {}, "wasStarted": end.was_started,
        }  # fmt: skip
        await self._host.exited(attempt.job_name, json.dumps(word))
        self._close(attempt)

    def _close(self, attempt: _Attempt) -> None:
        if not attempt.is_over:
            attempt.is_over = True
            self._host.wake(attempt.job_name)
