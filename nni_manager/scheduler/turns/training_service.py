"""One training service of one experiment: keeps its adapter connected, and holds its live state.

Its errors never end the experiment: an unreachable service is retried; errors of the adapter and a minute of refused
credentials put this service on hold, and the others continue. Observations go into the inbox; the plan decides on them.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.domain.experiment import Hold, HoldCode, PlatformSpec
from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.domain.service import LiveService, ServiceStatus, Wait, WaitCode
from nni_manager.platform_kit.contract import NoRoom, Platform
from nni_manager.platform_kit.tasks import happened
from nni_manager.scheduler.planning.snapshot import ServiceState
from nni_manager.scheduler.turns import forgetting
from nni_manager.scheduler.turns.forgetting import Forgetting, to_forget
from nni_manager.scheduler.turns.inbox import Inbox
from nni_manager.scheduler.turns.observer import Observer
from nni_manager.scheduler.turns.refusals import TRY_AGAIN_S, Refusals, leave, within_limit
from nni_manager.store.database import Database
from nni_manager.store.experiment import jobs
from trial_runner.wire.backoff import Backoff

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Milliseconds before an unavailable service is tried again; the last value repeats.
_RETRY_WAITS_MS = (200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
#: Milliseconds before a service without room is tried again; the last value repeats.
_FULL_WAITS_MS = (500, 1_000, 2_000, 5_000, 10_000, 30_000)


#: Builds an adapter; the argument becomes its `Host.wake`.
Make = Callable[[Callable[[str], None]], Platform[Any]]


class _OtherSettings(Exception):
    """Ends the use of an adapter because its settings changed: a new one is entered."""


class TrainingService:
    """`changed`: called after a visible change; `entered`: called after each connect.

    `trials`: folder of the attempts' folders; None: logs of remote jobs are not copied.
    """

    #: The platform's own objects of the stopped experiment were removed.
    is_closed = False

    def __init__(
        self,
        *,
        spec: PlatformSpec,
        make: Make,
        inbox: Inbox,
        database: Database,
        clock: Clock,
        changed: Callable[[], None],
        entered: Callable[[Platform[Any]], None] = lambda _: None,
        trials: Path | None = None,
        max_log_bytes: int = 100 * 2**20,
    ) -> None:
        #: From the config; a removed service keeps its last one.
        self.spec = spec
        self.name = spec.service
        self.platform = make(self.wake)
        self._inbox, self._database = inbox, database
        self._clock = clock
        self._changed = changed
        self._entered = entered
        self._trials, self._max_log_bytes = trials, max_log_bytes
        self.observer = Observer(
            service=spec.service,
            database=database,
            observe=self._observe,
            tell=self._tell,
            capabilities=self.platform.capabilities,
        )
        self._refusals = Refusals(inbox, self.name)
        self.forgetting = Forgetting(self._forget, self._observe_once, self.observer, inbox.forgotten, inbox.report)
        self.is_entered = False
        #: No longer in the config; it stays until it has no attempts.
        self.is_removed = False
        #: Changed settings and the builder of the next adapter; None: no change.
        self._next: tuple[PlatformSpec, Make] | None = None
        self._has_next = asyncio.Event()
        #: Names of jobs cancelled over this connection.
        self.cancelled: set[str] = set()
        #: Why it is unavailable; None: it is available, or this is unknown yet.
        self.trouble: Hold | None = None
        #: Time since which it is unreachable; None: reachable.
        self._away_since_ms: int | None = None
        self._status, self._status_since_ms = ServiceStatus.CONNECTING, clock()
        #: Why the last submission found no room; None: it is not known to be full.
        self._full: Wait | None = None
        self._failed, self._without_room = Backoff(_RETRY_WAITS_MS), Backoff(_FULL_WAITS_MS)
        self._retry_at_ms = 0
        self._wanted = 0
        #: Set to reconnect at once.
        self._again = asyncio.Event()

    # State for the plan and for users

    @property
    def state(self) -> ServiceState:
        """The state of the service now, for the plan."""
        room = self.platform.room() if self.is_entered and self._full is None else None
        return ServiceState(
            is_ready=self.is_entered,
            away_since_ms=self._away_since_ms,
            trouble=self.trouble.sentence if self.trouble is not None else "",
            retry_at_ms=self._retry_at_ms,
            free=0 if self._full is not None else room.free if room is not None else None,
            is_tried=self._refusals.may_try,
            full=self._full or (room.why if room is not None else None),
            capabilities=self.platform.capabilities,
        )

    @property
    def live(self) -> LiveService:
        """The service as the API shows it."""
        now = self.state
        self._note_status(now)
        return LiveService(
            name=self.name,
            platform=self.spec.name,
            status=self._status,
            since_ms=self._status_since_ms,
            trouble=now.trouble,
            free=now.free,
            full=now.full,
        )

    def want(self, trials: int) -> None:
        """Tells the adapter the number of trials that wait for room on it."""
        if self.is_entered and trials != self._wanted:
            self._wanted = trials
            self.platform.want(trials)

    def follow_clock(self, step_ms: int) -> None:
        """Shifts stored times after the wall clock was set by `step_ms`."""
        self._retry_at_ms += step_ms
        self._status_since_ms += step_ms
        if self._away_since_ms is not None:
            self._away_since_ms += step_ms

    def wake(self, job_name: str) -> None:
        """Called by the adapter: a job changed, or perhaps all (empty name)."""
        if not job_name:
            self._full = None
            self.cancelled.clear()  # after a reconnect: earlier cancel calls may not have arrived
            self._note_status()
            self._inbox.wake()
        self.observer.wake(job_name)

    def try_again(self) -> None:
        """Retries at once, as the user fixed something."""
        self._refusals.forget()
        self._retry_at_ms = 0
        self._again.set()
        if self.is_entered:
            self.platform.try_again()

    def change(self, spec: PlatformSpec, make: Make) -> None:
        """Changes the settings and reconnects with them; jobs run on."""
        self._next = spec, make
        self._has_next.set()
        self.try_again()

    @property
    def wanted(self) -> PlatformSpec:
        """The spec after a pending change."""
        return self.spec if self._next is None else self._next[0]

    # Connection

    async def run(self) -> None:
        """Keeps the service connected until the task is cancelled; jobs run on."""
        backoff = Backoff(_RETRY_WAITS_MS)
        while True:
            self._again.clear()
            self._take_over()
            begun_s = asyncio.get_running_loop().time()
            try:
                await self._live()
            except _OtherSettings:
                backoff.reset()
                continue
            except (PlatformUnavailable, BadCredentials) as error:
                self._note_failure("enter", error)
            except Exception as error:
                self.note_bug(error)
            if asyncio.get_running_loop().time() - begun_s > 60:
                backoff.reset()
            wait_s = backoff.next_wait() / 1000
            await self._pause(TRY_AGAIN_S if self._refusals.is_held else wait_s)

    def _take_over(self) -> None:
        if self._next is not None:
            self.spec, make = self._next
            self.platform, self._next, self._full = make(self.wake), None, None
            self.observer.capabilities = self.platform.capabilities
            self._has_next.clear()

    async def _until_changed(self) -> None:
        await self._has_next.wait()
        raise _OtherSettings

    async def _live(self) -> None:
        """Enters the adapter, observes, and leaves it again. Raises the exceptions of entering and observing."""
        await within_limit(self.name, "enter", self.platform.__aenter__)
        try:
            await self._end_unaccounted()
            self.is_entered = True
            self._wanted = 0
            self._be_back()
            self._refusals.accepted("enter")
            self._inbox.end_hold(self.name)  # set by an earlier process
            self._note_status()
            self._entered(self.platform)
            self._inbox.wake()  # waiting trials may start
            self.observer.wake("")  # changes before the connect are not reported
            async with asyncio.TaskGroup() as group:
                self.forgetting.enter(group)
                group.create_task(self._until_changed(), name=f"settings of {self.name}")
                self.forgetting.add(await self._database.read(lambda c: to_forget(c, self.name)))
                await self.observer.run()
        except ExceptionGroup as error:
            raise error.exceptions[0] from None
        finally:
            self.is_entered = False
            self.forgetting.leave()
            await leave(self.platform)

    async def _pause(self, seconds: float) -> None:
        await happened(self._again, asyncio.timeout(seconds))

    async def _end_unaccounted(self) -> None:
        """Ends jobs of closed attempts that may still run, before new ones are submitted."""
        names = await self._database.read(lambda c: jobs.unconfirmed_jobs(c, self.name))
        if names:
            await within_limit(self.name, "clean", lambda: self.platform.clean(names))
            self._inbox.forgotten(names)

    # Verbs

    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        """Submits a job. Raises SubmitRejected, PlatformUnavailable, BadCredentials, or an adapter's own errors."""
        self._refusals.begin_try()
        answer = await self.call("submit", lambda: self.platform.submit(spec))
        self._refusals.accepted("submit")
        if isinstance(answer, NoRoom):
            wait_s = self._without_room.next_wait() / 1000
            asyncio.get_running_loop().call_later(wait_s, self._set_full, None)
            self._set_full(answer.why)
        else:
            self._be_back()
            self.note_trouble(None)
            self.observer.add(answer)
        return answer

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        """Asks jobs to end. Raises as `submit`."""
        await self.call("cancel", lambda: self.platform.cancel(handles, grace_period_s))

    async def close(self) -> None:
        """Closes the stopped experiment on the service. Errors are logged; `clean` removes the rest later."""
        if self.is_entered:
            try:
                await self.call("close", self.platform.close)
                self.is_closed = True
            except Exception as error:
                log.warning("%s: its files of the experiment could not be removed: %s", self.name, error)

    async def call(self, verb: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Calls the adapter within the verb's time limit. Raises PlatformUnavailable if it is not connected."""
        if not self.is_entered:
            sentence = self.trouble.sentence if self.trouble is not None else f"{self.name} is being connected"
            raise PlatformUnavailable(sentence, refused=True)
        return await within_limit(self.name, verb, ask)

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        """Part of a job's file, as `Platform.read_file`."""
        return await self.call("read_file", lambda: self.platform.read_file(handle, name, offset, limit))

    async def list_files(self, handle: JobHandle) -> Sequence[str]:
        """The files of a job, as `Platform.list_files`."""
        return await self.call("list_files", lambda: self.platform.list_files(handle))

    async def _forget(self, handles: Sequence[JobHandle]) -> None:
        if self.platform.capabilities.reads_files and self._trials is not None:
            await forgetting.keep_logs(self._trials, handles, self.read_file, self._max_log_bytes)
        await self._database.sync()  # otherwise a power failure restores their attempts without a record of the end
        await self.call("forget", lambda: self.platform.forget(handles))
        if self.is_removed:
            self._inbox.wake_soon()  # a removed service may be idle now

    async def _observe_once(self, handles: Sequence[JobHandle]) -> Mapping[JobHandle, Observation]:
        return await self.call("observe", lambda: self.platform.observe(handles))

    async def _observe(self, handles: Sequence[JobHandle]) -> Mapping[JobHandle, Observation] | None:
        """Observations of jobs; None: the service is unavailable."""
        try:
            reports = await self._observe_once(handles)
        except (PlatformUnavailable, BadCredentials) as error:
            self._note_failure("observe", error)
            return None
        self._be_back()
        self._refusals.accepted("observe")
        return reports

    def _tell(self, reports: Mapping[str, Observation]) -> None:
        decided = self.forgetting.hear(reports)
        self._inbox.report(reports, decided)

    # Problems

    def note_refusal(self, error: PlatformUnavailable | BadCredentials) -> None:
        """Notes a refused submission; the next one waits."""
        self._note_failure("submit", error)

    def _note_failure(self, verb: str, error: PlatformUnavailable | BadCredentials) -> None:
        """Notes a failed call; a failed submission does not make the service unreachable."""
        self._be_away(str(error), is_away=verb != "submit")
        self._refusals.failed(verb, error)

    def _be_away(self, sentence: str, *, is_away: bool = True) -> None:
        if is_away and self._away_since_ms is None:
            self._away_since_ms = self._clock()
        now_ms = self._clock()
        if now_ms >= self._retry_at_ms:
            self._retry_at_ms = now_ms + int(self._failed.next_wait())
        self.note_trouble(Hold(code=HoldCode.PLATFORM_UNAVAILABLE, sentence=sentence))

    def _be_back(self) -> None:
        if self._away_since_ms is not None:
            self._away_since_ms = None
            self.cancelled.clear()  # cancel calls may have been lost
            self.note_trouble(None)
            self._inbox.wake()

    def note_trouble(self, trouble: Hold | None) -> None:
        """Sets why the service is unavailable; None: it is available."""
        if trouble is None:
            self._failed.reset()
            self._without_room.reset()
        elif self.trouble is None:
            log.warning("%s takes no jobs: %s", self.name, trouble.sentence)
        if trouble != self.trouble:
            self.trouble = trouble
            self._note_status()
            self._inbox.wake()
            self._changed()

    def _note_status(self, now: ServiceState | None = None) -> None:
        """Updates status and its time. `now`: the state, if known."""
        is_up = ServiceStatus.UP if self.is_entered else ServiceStatus.CONNECTING
        status = ServiceStatus.AWAY if self.trouble is not None or _has_no_machine(now or self.state) else is_up
        if status is not self._status:
            self._status, self._status_since_ms = status, self._clock()
            self._inbox.wake()

    def _set_full(self, why: Wait | None) -> None:
        self._full = why
        self._inbox.wake()

    def note_bug(self, error: Exception) -> None:
        """Notes an unexpected exception of the adapter: the service goes on hold."""
        log.error("the adapter of %s failed", self.name, exc_info=error, extra={"action": "barrier"})
        sentence = f"the platform's adapter failed: {error!r}; resume retries"
        self._be_away(sentence)
        self._inbox.put_on_hold(
            Hold(code=HoldCode.INTERNAL, sentence=sentence, details="".join(traceback.format_exception(error))),
            self.name,
        )


def _has_no_machine(now: ServiceState) -> bool:
    return now.free == 0 and now.full is not None and now.full.code is WaitCode.MACHINE_DOWN
