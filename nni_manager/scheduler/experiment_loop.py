"""One experiment at work: wake → turn → act.

Woken by what platform, tuner and people do; a slow safety poll stands behind that. Everything it holds in memory may be
lost at any moment: the next process finds it out again.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from nni_manager import __version__
from nni_manager.domain import version
from nni_manager.domain.clock import Clock, ClockSteps
from nni_manager.domain.errors import PlatformUnavailable, StoreCorrupt, VersionRefused
from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus, Hold, HoldCode, Json
from nni_manager.domain.job import JobReport, JobState
from nni_manager.domain.trial import Reason
from nni_manager.platform_kit.contract import Delivery, Host, Platform
from nni_manager.platform_kit.keeper_client import Keeper
from nni_manager.scheduler import decisions as d
from nni_manager.scheduler import experiment_log, journal
from nni_manager.scheduler.actions import Actions
from nni_manager.scheduler.beats import Beats
from nni_manager.scheduler.bell import Bell
from nni_manager.scheduler.code_archive import CodeArchive
from nni_manager.scheduler.deliveries import Deliveries, delivery
from nni_manager.scheduler.intake import Intake, surroundings
from nni_manager.scheduler.observer import Observer
from nni_manager.scheduler.runner_door import RunnerDoor
from nni_manager.scheduler.tally import tally
from nni_manager.scheduler.tuner_feed import TunerFeed
from nni_manager.scheduler.turn import LastWords, Result, Seen, take_turn
from nni_manager.store import jobs, runners
from nni_manager.store.database import Database

log = logging.getLogger(__name__)

#: Seconds between two tries to open the trial listener.
_DOOR_WAIT_S = 2.0


class ExperimentLoop:
    """Owned and run by the supervisor. `settings`: of the platform, secrets in place. `changed` is called after
    everything that clients might want to see."""

    def __init__(
        self, *, experiment_id: str, spec: ExperimentSpec, database: Database, feed: TunerFeed, keeper: Keeper,
        platform_class: type[Platform], settings: Json, actions: Actions, runner_door: RunnerDoor, clock: Clock,
        safety_poll_s: float, changed: Callable[[], None], on_status: Callable[[Result], Awaitable[None]],
    ) -> None:  # fmt: skip
        self.experiment_id = experiment_id
        self.spec = spec
        self.database = database
        self.feed = feed
        self._clock = clock
        self._clock_steps = ClockSteps(clock)
        self._runner_door = runner_door
        self._safety_poll_s = safety_poll_s
        self._changed = changed
        self._on_status = on_status
        folder = actions.folder_of_trials.parent
        #: What jobs elsewhere run.
        self.code_archive = CodeArchive(Path(spec.trial_code_directory), folder / "code")
        self.actions = actions
        self.bell = Bell()
        self.intake = Intake(self.bell, feed, actions)
        self.platform = platform_class(settings, self._host(keeper, folder))
        self.observer = Observer(self.platform, database, self.intake.take_reports, self.intake.take_trouble, clock)
        self.beats = Beats(self.wake)
        actions.bind(self)
        self._deliveries = Deliveries(database, clock, self.wake)
        self._wake_at_ms: int | None = None
        self._last: Result | None = None
        self._shown_hold: Hold | None = None
        self._corruption: StoreCorrupt | None = None
        #: The experiment is STOPPED: nothing more to do.
        self.closed = asyncio.Event()

    def _host(self, keeper: Keeper, folder: Path) -> Host:
        return Host(
            experiment_id=self.experiment_id,
            wake=self._wake_observer,
            deliver=self.deliver,
            followed=lambda names: self.database.read(lambda c: jobs.followed(c, names)),
            keeper=keeper,
            folder=folder,
            code=self.code_archive.path,
            greet=self.greet,
            exited=self.exited,
        )

    # Called from everywhere

    def wake(self) -> None:
        """Something happened; look at once."""
        self.bell.ring()

    def give_up(self, error: StoreCorrupt) -> None:
        """`run` raises it soon: nothing can be read or stored any more."""
        self._corruption = error
        self.wake()

    @property
    def is_stopping(self) -> bool:
        return self._last is not None and self._last.status is ExperimentStatus.STOPPING

    @property
    def derived_hold(self) -> Hold | None:
        """A hold that is not recorded (yet): store, tuner or platform cannot be used now, and it ends by itself."""
        if self.database.trouble:
            return Hold(code=HoldCode.STORE_UNAVAILABLE, sentence=self.database.trouble)
        return self.feed.silence or self.actions.trouble or self.intake.hold

    async def deliver(
        self, job_name: str, outbox: str, start: int, end: int, lines: Sequence[str], ended: JobReport | None = None,
        container: str = "",
    ) -> Delivery:  # fmt: skip
        """Stores lines of an outbox, and the end of its job if they were the last; ends when they are committed."""
        experiment_log.current.set(self.experiment_id)  # the caller's task may be anybody's
        try:
            receipt = await self._deliveries.store(job_name, outbox, start, end, lines, ended, container)
        except StoreCorrupt as error:
            self.give_up(error)  # the platform would only offer the lines again
            raise
        if receipt.has_intermediates:
            self.feed.judge(receipt.trial_id)
        if receipt.may_complete:
            self.wake()
        self._changed()
        return delivery(receipt)

    async def greet(
        self, job_name: str, runner_version: str | None, channel: str, manager_version: str = __version__, *,
        container: str = "", outboxes: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        """A runner says what it is. Raises VersionRefused, AttemptDecided; see `store.runners.greet`.

        A version that is refused fails the trial, and the experiment is in ERROR.
        """
        refusal = version.refusal(manager_version, runner_version) if self.spec.checks_version else ""
        if refusal:
            report = JobReport(state=JobState.FAILED, reason=Reason.VERSION_MISMATCH, message=refusal)
            self.intake.take_reports({job_name: report})
            raise VersionRefused(refusal)
        told = runner_version or "unknown"
        await self.database.try_write(
            lambda c: runners.greet(c, job_name, version=told, channel=channel, container=container, outboxes=outboxes)
        )

    async def exited(self, job_name: str, word: str) -> None:
        """A runner says how its command ended; the first word counts."""
        now_ms = self._clock()
        await self.database.try_write(lambda c: runners.set_exit(c, job_name, word, now_ms))
        self.wake()

    # The loop

    async def run(self) -> None:
        """Until the experiment is closed. Raises what the plan, the store or an adapter raise by mistake."""
        async with self.platform, asyncio.TaskGroup() as group:
            organs = [
                group.create_task(self.observer.run(), name=f"observer {self.experiment_id}"),
                group.create_task(self.feed.run(), name=f"tuner {self.experiment_id}"),
            ]
            if self.platform.capabilities.has_runner:
                organs.append(group.create_task(self._open_runner_door(), name=f"door {self.experiment_id}"))
            self.actions.enter(group)
            self.actions.forget(await self.database.read(_to_forget))
            while not self.closed.is_set():
                await self.turn()
                if not self.closed.is_set():
                    await self._wait()
            await self.actions.finish()
            await self._runner_door.close(self.experiment_id)
            for organ in organs:
                organ.cancel()

    async def _open_runner_door(self) -> None:
        """At once, as runners of an earlier daemon have something to tell; tried until it can be had."""
        while True:
            try:
                await self._runner_door.open(self.experiment_id)
            except PlatformUnavailable as error:
                self.intake.take_trouble(Hold(code=HoldCode.PLATFORM_UNAVAILABLE, sentence=str(error)))
                await asyncio.sleep(_DOOR_WAIT_S)
            else:
                self.beats.begin()
                return self.intake.take_trouble(None)

    async def turn(self) -> None:
        """One turn: everything seen so far goes in, everything decided is carried out."""
        self.bell.answer()
        if self._corruption is not None:
            raise self._corruption
        handed = self._deliveries.take()
        try:
            seen, result = await self._record(handed.words)
        except BaseException as error:
            handed.fail(error)
            raise
        handed.answer(result.receipts)
        self.intake.stored()
        reports = (*seen.reports.items(), *((w.chunk.job_name, w.report) for w in handed.words))
        journal.write(seen.handles, result.records, reports)
        await self._act(result)

    async def _record(self, last_words: tuple[LastWords, ...]) -> tuple[Seen, Result]:
        seen, spec = self.intake.take(last_words, self._follow_clock()), self.spec
        here = surroundings(self.feed, self.actions, self.observer, self.platform.capabilities, self.beats, self._clock)
        told, assessed = self.feed.told, spec.assessor is not None
        with tally.turns.measured():
            return seen, await self.database.write(
                lambda c: take_turn(c, spec, seen, here, told=told, assessed=assessed)
            )

    def _follow_clock(self) -> int:
        """Answers by how much the wall clock was set, in milliseconds: nothing took longer or shorter by that."""
        step_ms = self._clock_steps.since_last_look()
        if step_ms:
            log.warning("the clock of this machine was set by %+.0f s; time limits do not count that", step_ms / 1000)
            self.actions.follow_clock(step_ms)
            self.observer.follow_clock(step_ms)
        return step_ms

    async def _act(self, result: Result) -> None:
        self.feed.next_parameter_id = max(self.feed.next_parameter_id, result.next_parameter_id)
        added = {r.parameter_id for r in result.records if isinstance(r, d.AddTrial)}
        if added:
            self.feed.take(added)
        if result.to_tell:
            self.feed.tell(result.to_tell)
        for call in result.calls:
            self.actions.perform(call)
        self._wake_at_ms = result.wake_at_ms
        if self._last is None or (result.status, result.hold) != (self._last.status, self._last.hold):
            await self._note_status(result)
        self._last = result
        if result.records or self.derived_hold != self._shown_hold:
            self._shown_hold = self.derived_hold
            self._changed()

    async def _note_status(self, result: Result) -> None:
        if result.status is ExperimentStatus.STOPPED:
            self.closed.set()
        if result.status is ExperimentStatus.DONE:
            self.feed.rest()
        await self._on_status(result)
        self._changed()

    async def _wait(self) -> None:
        """Until something happens, a moment the plan named comes, or the safety poll is due."""
        seconds = self._safety_poll_s
        if self._wake_at_ms is not None:
            seconds = min(seconds, max(0.0, (self._wake_at_ms - self._clock()) / 1000))
        await self.bell.wait(seconds)

    def _wake_observer(self, job_name: str) -> None:
        if not job_name:
            self.actions.forget_cancels()
        self.observer.wake(job_name)


def _to_forget(connection: sqlite3.Connection) -> list[d.Forget]:
    words = jobs.unconfirmed(connection)
    return [
        d.Forget(handle=handle, runner_word=words.get(handle.job_name, "")) for handle in jobs.unforgotten(connection)
    ]
