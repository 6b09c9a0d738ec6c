"""Reads the files of trial runners in a shared folder: their registration, results, logs and end.

For clusters that cannot reach the trial listener. A mounted folder does not notify about another machine's writes, so
it is polled: often while files change, and ever more rarely otherwise. Everything goes to the `Host` with offsets, so
repeats are harmless; nothing is decided here.

Storage lags: a folder, a file or its last bytes may become visible a minute after `exit.json`, which was written last.
So the end is reported with the sizes in `exit.json`, and files are read until they reach these sizes or the job is
forgotten; the scheduler decides how long a trial waits for that.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from nni_manager.domain.errors import AttemptDecided, NniManagerError, VersionRefused
from nni_manager.platform_kit.contract import Host
from nni_manager.platform_kit.tasks import happened
from nni_manager.shared_storage import runner_folder
from nni_manager.shared_storage.pulled_job import SHORTEST_WAIT_S, PulledJob
from nni_manager.shared_storage.runner_folder import End, Registration
from trial_runner import protocol
from trial_runner.wire import outbox_files, stderr_end
from trial_runner.wire.outbox_files import Present

log = logging.getLogger(__name__)

#: Maximum seconds between two reads of an attempt: generally, and after its end, while data is missing.
LONGEST_WAIT_S = 10.0
_LONGEST_WAIT_AFTER_END_S = 2.0
_GROWTH = 1.5
#: Maximum number of chunks of results per read of an attempt, so that the others get their turn.
_MOST_STRETCHES = 16
#: Seconds for which a runner's report of the end is held back because its logs are incomplete.
LOG_PATIENCE_S = 10.0


class Pull:
    """The reading of the runners' folders for one adapter; every method but `run` returns at once."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._attempts: dict[str, PulledJob] = {}
        self._news = asyncio.Event()

    def follow(self, job_name: str, folder: Path, logs: Path, *, run: str = "") -> None:
        """Starts reading the attempt's `folder`, and copying its logs to the folder `logs`. Idempotent.

        `run`: container id of the job's present run, where the service tells that it runs the job again: an end that
        another container left in the folder decides nothing. Empty: the newest registered container counts.
        """
        attempt = self._attempts.get(job_name)
        if attempt is None:
            now = asyncio.get_running_loop().time()
            self._attempts[job_name] = PulledJob(job_name=job_name, folder=folder, logs=logs, next_at=now, run=run)
            self._news.set()
        elif run not in ("", attempt.run):
            attempt.run = run
            attempt.reopen()
            self._news.set()

    def finish(self, job_name: str, patience_s: float) -> None:
        """Notes that the platform reports the job's end: its files are read now.

        `is_over` is True when that is done, or `patience_s` have passed; `Host.wake` reports it. Data that becomes
        visible later is still read, until the job is forgotten. Ignores a job that is not followed.
        """
        attempt = self._attempts.get(job_name)
        if attempt is not None and attempt.give_up_at is None and not attempt.is_over:
            attempt.hurry()
            attempt.give_up_at = attempt.next_at + patience_s
            self._news.set()

    def is_over(self, job_name: str) -> bool:
        """Whether a job's data was read, or the wait for it has ended; True for a job that is not followed."""
        attempt = self._attempts.get(job_name)
        return attempt is None or attempt.is_over or attempt.has_given_up

    def forget(self, job_name: str) -> None:
        """Stops reading a job's folder. Ignores a job that is not followed."""
        self._attempts.pop(job_name, None)

    def notice(self, job_name: str) -> None:
        """Reads a job's folder now, as its files have changed. Ignores a job that is not followed."""
        attempt = self._attempts.get(job_name)
        if attempt is not None and not attempt.is_over:
            attempt.hurry()
            self._news.set()

    def has_started(self, job_name: str) -> bool:
        """Whether the job's runner has registered, that of its present run."""
        attempt = self._attempts.get(job_name)
        return attempt is not None and attempt.is_registered and attempt.run in ("", attempt.container)

    def has_ended(self, job_name: str) -> bool:
        """Whether the exit file of the job's newest container was read."""
        attempt = self._attempts.get(job_name)
        return attempt is not None and attempt.end_seen_at is not None

    async def run(self) -> None:
        """Reads the attempts repeatedly. Ends only by cancellation."""
        while True:
            await self.look()
            await self._wait()

    async def look(self) -> None:
        """Reads the folders of all due attempts once."""
        now = asyncio.get_running_loop().time()
        for attempt in [one for one in self._attempts.values() if not one.is_refused and one.next_at <= now]:
            await self._look_at(attempt)

    async def _wait(self) -> None:
        times = [attempt.next_at for attempt in self._attempts.values() if not attempt.is_refused]
        await happened(self._news, asyncio.timeout_at(min(times, default=None)))
        self._news.clear()

    async def _look_at(self, attempt: PulledJob) -> None:
        stretches, has_news = 0, False
        try:
            stretches, has_news = await self._read(attempt)
            attempt.trouble = ""
        except (NniManagerError, OSError) as error:
            self._complain(attempt, error)
        except Exception as error:  # one trial's files must not affect the results of others
            self._complain(attempt, error, is_ours=True)
        self._plan_next(attempt, stretches, has_news)

    def _plan_next(self, attempt: PulledJob, stretches: int, has_news: bool) -> None:
        now = asyncio.get_running_loop().time()
        if attempt.is_over:  # another container may still register
            attempt.next_at = now + LONGEST_WAIT_S
            return
        is_ended = attempt.give_up_at is not None or attempt.end_seen_at is not None
        longest_s = _LONGEST_WAIT_AFTER_END_S if is_ended else LONGEST_WAIT_S
        attempt.wait_s = SHORTEST_WAIT_S if has_news else min(longest_s, _GROWTH * attempt.wait_s)
        attempt.next_at = now + (0.0 if stretches == _MOST_STRETCHES else attempt.wait_s)
        if attempt.give_up_at is None or attempt.has_given_up or attempt.is_over:
            return
        if now >= attempt.give_up_at and not has_news:
            attempt.has_given_up = True
            self._host.wake(attempt.job_name)
        else:
            attempt.next_at = min(attempt.next_at, max(now, attempt.give_up_at))

    def _complain(self, attempt: PulledJob, error: Exception, *, is_ours: bool = False) -> None:
        if repr(error) != attempt.trouble:
            log.warning(
                "files of job %s in %s cannot be read now: %s",
                attempt.job_name,
                attempt.folder,
                error,
                exc_info=error if is_ours else None,
            )
        attempt.trouble = repr(error)

    async def _read(self, attempt: PulledJob) -> tuple[int, bool]:
        """Reads new data of an attempt; returns the number of chunks of results, and whether anything was new."""
        end = await asyncio.to_thread(runner_folder.read_end, attempt.folder)  # first, as it was written last
        if end is not None and end.container != attempt.run and attempt.run:
            end = None  # of an earlier run
        registration = await asyncio.to_thread(runner_folder.read_registration, attempt.folder)
        if registration is not None and attempt.is_followed_by(registration.container):
            if not await self._take_earlier(attempt, registration):
                return 0, True
            await self._register(attempt, registration)
        if attempt.is_over:
            return 0, False
        if not attempt.is_registered:
            if end is not None and not end.was_started:  # the command never started: nothing else will come
                await self._tell_end(attempt, end)
                attempt.end_seen_at = asyncio.get_running_loop().time()
                self._close(attempt)
            return 0, False
        if end is not None and end.container not in ("", attempt.container):
            end = None  # of an earlier container
        stretches, trouble = await self._take_results(attempt, end)
        copied = await self._copy_logs(attempt)
        if end is not None and stretches < _MOST_STRETCHES:
            await self._take_end(attempt, end)
        if trouble is not None:
            raise trouble
        return stretches, bool(stretches or copied)

    async def _take_earlier(self, attempt: PulledJob, registration: Registration) -> bool:
        """Delivers what an earlier container had written when this one registered, so that it counts as the earlier
        one's. Returns whether that is all, or has been waited for long enough."""
        sizes = registration.outboxes
        if not sizes:
            return True
        if attempt.offsets is None:
            attempt.offsets = dict(await self._host.stored(attempt.job_name))
        offsets = attempt.offsets
        with suppress(OSError):  # not visible yet, or not stored
            for name, size in sizes.items():
                while offsets.get(name, 0) < size and await self._take_stretch(
                    attempt, offsets, name, is_last=False, size=None, until=size
                ):
                    pass
        if attempt.offsets is not None and all(offsets.get(name, 0) >= size for name, size in sizes.items()):
            return True
        if attempt.earlier_until is None:
            attempt.earlier_until = asyncio.get_running_loop().time() + LOG_PATIENCE_S
        return _is_past(attempt.earlier_until)

    async def _register(self, attempt: PulledJob, registration: Registration) -> None:
        """Passes on a new registration."""
        try:
            await self._host.register(
                attempt.job_name,
                registration.version,
                protocol.PULL,
                container=registration.container,
                outboxes=registration.outboxes,
            )
        except VersionRefused:
            attempt.is_refused = True
            return self._close(attempt)
        except AttemptDecided:  # storage shows an earlier state
            if attempt.is_registered:
                attempt.earlier.add(registration.container)
            return
        if attempt.is_registered:
            attempt.earlier.add(attempt.container)
        if attempt.is_registered or attempt.is_over:
            attempt.reopen()
        attempt.is_registered, attempt.container = True, registration.container
        attempt.offsets, attempt.earlier_until = None, None
        self._host.wake(attempt.job_name)

    async def _take_results(self, attempt: PulledJob, end: End | None) -> tuple[int, OSError | None]:
        """Delivers results; returns the number of chunks, at most `_MOST_STRETCHES`, and the error of an unreadable
        outbox, which does not affect others."""
        if attempt.offsets is None:
            attempt.offsets = dict(await self._host.stored(attempt.job_name))
        count, trouble, offsets = 0, None, attempt.offsets
        is_last = end is not None or attempt.give_up_at is not None
        known = [*offsets, *(end.outboxes or () if end is not None else ())]
        found = await asyncio.to_thread(outbox_files.present, str(attempt.folder), known)
        if is_last:
            await self._tell_of_unread_files(attempt, found, end)
        for outbox in found.names:
            size = end.outboxes.get(outbox, 0) if end is not None and end.outboxes is not None else None
            try:
                while count < _MOST_STRETCHES and await self._take_stretch(attempt, offsets, outbox, is_last, size):
                    count += 1
            except OSError as error:
                trouble = trouble or error
        return count, trouble

    async def _take_stretch(
        self,
        attempt: PulledJob,
        offsets: dict[str, int],
        outbox: str,
        is_last: bool,
        size: int | None,
        until: int | None = None,
    ) -> bool:
        """Delivers the next chunk of an outbox; returns whether there was one.

        `is_last`: the outbox is complete; `size`: its final size in bytes, if known; `until`: only records before it.
        """
        stretch = await asyncio.to_thread(
            runner_folder.next_outbox_stretch,
            attempt.folder,
            outbox,
            offsets.get(outbox, 0),
            is_ended=is_last,
            size=size,
            takes_holes=_is_past(attempt.give_up_at),
            until=until,
        )
        if stretch is None or (until is None and await self._is_followed(attempt)):
            return False
        delivery = await self._host.deliver(
            attempt.job_name, outbox, stretch.start, stretch.end, stretch.lines, container=attempt.container
        )
        if delivery.resend:
            attempt.offsets = None  # the store knows more: it is queried at the next read
            raise OSError(f"bytes of {outbox} before {stretch.start} are not stored")
        offsets[outbox] = stretch.end
        return True

    async def _is_followed(self, attempt: PulledJob) -> bool:
        """Whether another container has registered meanwhile, so that lines which were just read may be its own."""
        registration = await asyncio.to_thread(runner_folder.read_registration, attempt.folder)
        return registration is not None and attempt.is_followed_by(registration.container)

    async def _tell_of_unread_files(self, attempt: PulledJob, found: Present, end: End | None) -> None:
        name, offsets = protocol.NOT_READ_OUTBOX, attempt.offsets
        if offsets is None or name in offsets:
            return
        lines = [] if found.is_complete else [protocol.NOT_READ]
        if end is not None and end.lacks_read(offsets):
            lines.append(protocol.GONE)
        if lines:
            size = sum(map(len, lines))
            await self._host.deliver(attempt.job_name, name, 0, size, lines, container=attempt.container)
            offsets[name] = size

    async def _copy_logs(self, attempt: PulledJob) -> int:
        """Copies new parts of the logs; returns the number of bytes. Zeros count as printed after a while."""
        patience_is_over = _is_past(attempt.hole_until)
        copied = await asyncio.to_thread(
            runner_folder.copy_logs,
            attempt.folder,
            attempt.logs,
            self._host.max_log_bytes,
            takes_holes=patience_is_over,
        )
        if copied.size or not copied.has_hole:
            attempt.hole_until = None
        if copied.has_hole and attempt.hole_until is None:
            attempt.hole_until = asyncio.get_running_loop().time() + LOG_PATIENCE_S
        return copied.size

    async def _take_end(self, attempt: PulledJob, end: End) -> None:
        """Reports the end from the runner; the attempt is over when all data that it refers to is here."""
        now = asyncio.get_running_loop().time()
        if attempt.end_seen_at is None:
            attempt.end_seen_at = now
        missing = await asyncio.to_thread(runner_folder.missing_logs, attempt.logs, end.logs)
        if not attempt.is_end_reported and (not missing or now >= attempt.end_seen_at + LOG_PATIENCE_S):
            await self._tell_end(attempt, end, missing)
            attempt.is_end_reported = True
        sizes, offsets = end.outboxes or {}, attempt.offsets or {}
        if (
            attempt.is_end_reported
            and not missing
            and all(offsets.get(name, 0) >= size for name, size in sizes.items())
        ):
            self._close(attempt)

    async def _tell_end(
        self, attempt: PulledJob, end: End, missing_logs: Mapping[str, tuple[int, int]] | None = None
    ) -> None:
        tail = "" if end.exit_code == 0 else await asyncio.to_thread(stderr_end.read, str(attempt.folder))
        missing = (missing_logs or {}).items()
        some = ", ".join(f"{copied} of {size} bytes of {name}" for name, (copied, size) in missing)
        logs = f"its logs are incomplete: only {some} could be read in time" if some else ""
        word = {
            "exitCode": end.exit_code,
            "signal": end.signal,
            "stderrTail": tail,
            "startedMs": end.started_ms,
            "endedMs": end.ended_ms,
            "outboxes": attempt.offsets or {} if end.outboxes is None else end.outboxes,
            "container": end.container,
            "doubt": "; ".join(filter(None, (logs, end.gone))),
            "wasStarted": end.was_started,
        }
        await self._host.exited(attempt.job_name, json.dumps(word))

    def _close(self, attempt: PulledJob) -> None:
        if not attempt.is_over:
            attempt.is_over = True
            self._host.wake(attempt.job_name)


def _is_past(moment: float | None) -> bool:
    """Whether the time has come, by the loop's clock; False for None."""
    return moment is not None and asyncio.get_running_loop().time() >= moment
