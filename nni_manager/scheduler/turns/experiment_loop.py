"""The loop of one experiment: wake → turn → act.

Events of platform, tuner and API wake it, and a slow safety poll. Its memory may be lost at any moment: the next
process recovers everything from the store and the services.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from nni_manager.domain.clock import Clock, ClockSteps, apart_ms
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus, Hold, HoldCode, LiveSpec
from nni_manager.domain.service import LiveService, ServiceStatus
from nni_manager.platform_kit.tasks import ended
from nni_manager.scheduler.planning import decisions as d
from nni_manager.scheduler.planning.snapshot import ProcessState
from nni_manager.scheduler.tuning.feed import TunerFeed
from nni_manager.scheduler.turns import change_log
from nni_manager.scheduler.turns.actions import Actions
from nni_manager.scheduler.turns.inbox import Inbox
from nni_manager.scheduler.turns.training_service import TrainingService
from nni_manager.scheduler.turns.trial_listener import Heartbeats, TrialListener
from nni_manager.scheduler.turns.turn import Result, Seen, take_turn, tally
from nni_manager.store.database import Database

log = logging.getLogger(__name__)

#: Seconds between two attempts to open the trial listener.
_LISTENER_WAIT_S = 2.0


class ServicesAtWork(Protocol):
    """The training services of one experiment, for its loop."""

    #: By name.
    all: dict[str, TrainingService]

    async def remove_idle(self) -> list[TrainingService]:
        """Takes removed services without attempts out of `all`, and returns them."""

    async def forget_secrets(self) -> None:
        """Removes the secrets that no service refers to."""


class ExperimentLoop:
    """Run by `OpenExperiment`. `changed`: called after every visible change; `on_status`: after status or hold
    changed."""

    def __init__(
        self,
        *,
        experiment_id: str,
        spec: LiveSpec,
        database: Database,
        inbox: Inbox,
        feed: TunerFeed,
        services: ServicesAtWork,
        actions: Actions,
        heartbeats: Heartbeats,
        trial_listener: TrialListener,
        clock: Clock,
        safety_poll_s: float,
        changed: Callable[[], None],
        on_status: Callable[[Result], Awaitable[None]],
    ) -> None:
        self.experiment_id = experiment_id
        self._spec = spec
        self.database = database
        self.inbox = inbox
        self.feed = feed
        self._services = services
        self.services: Mapping[str, TrainingService] = services.all
        #: While it runs: its task group, and the task of each service.
        self._group: asyncio.TaskGroup | None = None
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._opening: asyncio.Task[None] | None = None
        self._actions = actions
        self.heartbeats = heartbeats
        self._runner_listener = trial_listener
        self._clock = clock
        self._clock_steps = ClockSteps(clock)
        self._safety_poll_s = safety_poll_s
        self._changed = changed
        self._on_status = on_status
        #: Private data is missing from the folder: nothing new starts until it is supplied.
        self.missing: Hold | None = None
        self._wake_at_ms: int | None = None
        self._last: Result | None = None
        self._stopping_since_ms: int | None = None
        #: (name, status) of removed services.
        self._removed: tuple[tuple[str, ServiceStatus], ...] = ()
        self._shown: object = None
        #: Set when the experiment is STOPPED.
        self.closed = asyncio.Event()

    # Called from everywhere

    def wake(self) -> None:
        """Starts the next turn at once."""
        self.inbox.wake()

    @property
    def spec(self) -> ExperimentSpec:
        return self._spec.now

    @property
    def now_ms(self) -> int:
        """Milliseconds since the epoch, for a write that starts now. A clock change since the last turn is subtracted,
        as the next turn will shift stored times by it."""
        return self._clock() - self._clock_steps.not_told_yet

    @property
    def has_runner(self) -> bool:
        """Whether trial runners of some of its jobs post to the trial listener."""
        return any(service.platform.capabilities.has_runner for service in self.services.values())

    @property
    def derived_hold(self) -> Hold | None:
        """A hold that is not stored (yet): store, tuner or all services are unavailable; it ends automatically."""
        if self.database.trouble:
            return Hold(code=HoldCode.STORE_UNAVAILABLE, sentence=self.database.trouble)
        troubles = [service.trouble or self.inbox.hold_of(service.name) for service in self.services.values()]
        all_in_trouble = troubles[0] if troubles and None not in troubles else None
        return self.missing or self.feed.silence or all_in_trouble or self.inbox.hold

    @property
    def live_services(self) -> tuple[LiveService, ...]:
        """The training services as the API shows them."""
        return tuple(service.live for service in self.services.values())

    # The loop

    async def run(self) -> None:
        """Runs the experiment until it is closed. Raises errors of the plan or the store."""
        async with asyncio.TaskGroup() as group:
            self._group, self._lives, self._opening = group, {}, None
            feeding = group.create_task(self.feed.run(), name=f"tuner {self.experiment_id}")
            self.live()
            self._actions.enter(group)
            while not self.closed.is_set():
                await self.turn()
                await self._detach_removed()
                if not self.closed.is_set():
                    await self._wait()
            await self._close()
            for task in (feeding, self._opening, *self._lives.values()):
                if task is not None:
                    task.cancel()

    def live(self) -> None:
        """Starts the tasks of new services, and opens the trial listener if they need it."""
        if (group := self._group) is None or self.closed.is_set():
            return
        for name, service in self.services.items():
            if name not in self._lives:
                self._lives[name] = group.create_task(service.run(), name=f"{name} {self.experiment_id}")
        if self.has_runner and self._opening is None:
            self._opening = group.create_task(self._open_runner_listener(), name=f"listener {self.experiment_id}")

    async def _detach_removed(self) -> None:
        for service in await self._services.remove_idle():
            assert self._group is not None
            life = self._lives.pop(service.name)
            self._group.create_task(self._shutdown(service, life), name=f"leave {service.name} {self.experiment_id}")

    async def _shutdown(self, service: TrainingService, life: asyncio.Task[None]) -> None:
        await service.close()
        await ended(life)
        await self._services.forget_secrets()
        self._changed()

    async def _close(self) -> None:
        """Lets the services forget all jobs, closes them, and stores the last events."""
        await self._actions.close()
        await asyncio.gather(*(service.forgetting.finish() for service in self.services.values()))
        await asyncio.gather(*(service.close() for service in self.services.values()))
        if not self.inbox.is_empty:
            await self.turn()
        await self._runner_listener.close(self.experiment_id)

    async def _open_runner_listener(self) -> None:
        """Opens the trial listener, with retries: runners that an earlier daemon started may be waiting to post."""
        trouble: Hold | None = None
        while True:
            try:
                await self._runner_listener.open(self.experiment_id)
            except PlatformUnavailable as error:
                trouble = Hold(code=HoldCode.PLATFORM_UNAVAILABLE, sentence=str(error))
                self._say_no_listener(trouble)
                await asyncio.sleep(_LISTENER_WAIT_S)
            else:
                self.heartbeats.begin()
                return self._say_no_listener(None) if trouble is not None else None

    def _say_no_listener(self, trouble: Hold | None) -> None:
        for service in self.services.values():
            if service.platform.capabilities.has_runner:
                service.note_trouble(trouble)

    async def turn(self) -> None:
        """One turn: takes all events of the inbox, records the decisions, and carries them out."""
        self.inbox.begin_turn()
        bad, self.feed.judged_bad = self.feed.judged_bad, []
        taken = self.inbox.take(
            judged_bad=bad,
            failure=self.feed.failure,
            clock_step_ms=self._follow_clock(),
            apart_ms=apart_ms(self._clock),
        )
        try:
            result = await self._record(taken.seen)
        except BaseException as error:
            taken.failed(error)
            self.inbox.lost()
            self.feed.judged_bad[:0] = bad  # the assessor does not report it again
            raise
        taken.stored(result.receipts)
        self.inbox.stored()
        change_log.log_changes(taken.seen.handles, result.records, taken.seen.reports.items())
        await self._act(result)

    async def _record(self, seen: Seen) -> Result:
        spec, here = self._spec.now, self._process_state()
        reported, assessed = self.feed.reported, self.feed.takes_intermediates
        with tally.turns.measured(), self.feed.lending():
            result = await self.database.write(
                lambda c: take_turn(c, spec, seen, here, reported=reported, assessed=assessed)
            )
            if added := {record.parameter_id for record in result.records if isinstance(record, d.AddTrial)}:
                self.feed.take(added)
        return result

    def _process_state(self) -> ProcessState:
        feed = self.feed
        listening_ms, silent_ms = self.heartbeats.silence_ms()
        return ProcessState(
            now_ms=self._clock(),
            listening_ms=listening_ms,
            silent_ms=silent_ms,
            stopping_since_ms=self._stopping_since_ms,
            submitting=frozenset(self._actions.submitting),
            cancelled=self._actions.cancelled,
            removing_checkpoints=self._actions.removal.at_work,
            heard=None if self.spec.max_trial_duration_s is None else frozenset(self.inbox.heard),
            services={name: service.state for name, service in self.services.items()},
            proposals=tuple(feed.proposals),
            asked=feed.asked,
            exhausted=feed.exhausted,
            ahead=feed.ahead,
            tuner_trouble=feed.silence,
            missing=self.missing,
        )

    def _follow_clock(self) -> int:
        """Returns by how many milliseconds the wall clock was set, and shifts times in memory by it."""
        step_ms = self._clock_steps.since_last_look()
        if step_ms:
            log.warning("the clock of this machine was set by %+.0f s; time limits ignore that", step_ms / 1000)
            if self._stopping_since_ms is not None:
                self._stopping_since_ms += step_ms
            for service in self.services.values():
                service.follow_clock(step_ms)
        return step_ms

    async def _act(self, result: Result) -> None:
        self.feed.next_parameter_id = max(self.feed.next_parameter_id, result.next_parameter_id)
        if result.to_tell:
            self.feed.tell(result.to_tell)
        ends = (record for record in result.records if isinstance(record, d.Finish | d.GiveUpAttempt))
        self._actions.note_ends([(end.trial_id, end.attempt) for end in ends])
        self._note_stopping(result)
        await self._actions.perform(result.calls)
        for name, service in self.services.items():
            service.want(result.wants.get(name, 0))
        self._wake_at_ms = result.wake_at_ms
        is_news = self._last is None or (result.status, result.hold) != (self._last.status, self._last.hold)
        if self._has_abandoned(result) or is_news:
            await self._note_status(result)
        self._last = result
        if result.records or result.shows_more:
            self._shown = None  # the next turn without changes compares what is shown then
            self._changed()
        elif (shown := (self.derived_hold, self.live_services)) != self._shown:
            self._shown = shown
            self._changed()

    def _has_abandoned(self, result: Result) -> bool:
        """Whether a trial was ended without its service, or a removed service changed its status."""
        before, self._removed = (
            self._removed,
            tuple((name, service.live.status) for name, service in self.services.items() if service.is_removed),
        )
        may_run = any(isinstance(record, d.Finish) and record.may_run for record in result.records)
        return may_run or before != self._removed

    def _note_stopping(self, result: Result) -> None:
        self._actions.is_stopping = result.status is ExperimentStatus.STOPPING
        if not self._actions.is_stopping:
            self._stopping_since_ms = None
        elif self._stopping_since_ms is None:
            self._stopping_since_ms = self._clock()
            self.wake()  # its trials are planned again, to stop them

    async def _note_status(self, result: Result) -> None:
        if result.status is ExperimentStatus.STOPPED:
            self.closed.set()
        if result.status is ExperimentStatus.DONE:
            self.feed.rest()
        await self._on_status(result)
        self._changed()

    async def _wait(self) -> None:
        """Waits for an event, for the time that the plan set, or for the safety poll."""
        seconds = self._safety_poll_s
        if self._wake_at_ms is not None:
            seconds = min(seconds, max(0.0, (self._wake_at_ms - self._clock()) / 1000))
        await self.inbox.wait(seconds)
