"""The events for an experiment's next turn, and the wake-up of its loop.

All sources of events put them here, and the loop takes them out. They are in memory until a turn has stored them: after
a crash, services and runners report them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import StoreCorrupt
from nni_manager.domain.experiment import Hold, HoldCode
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.scheduler.turns.turn import Seen
from nni_manager.store.experiment.metrics import OutboxPart, Receipt

#: Seconds for which less urgent events are collected, such as the start of a trial. Short trials then cost one turn
#: instead of two, and trials that start together share one.
GATHER_S = 0.05
#: As above, for events that change no trial: a job was accepted, its pod has a node, the platform confirms an end. On a
#: cluster these are most events.
DETAIL_S = 0.25
#: Order of states: unknown 0, pending 1, running 2, final 3.
_WEIGHT = {state: 3 if state.is_final else 0 for state in JobState} | {JobState.PENDING: 1, JobState.RUNNING: 2}


@dataclass(frozen=True, slots=True)
class Taken:
    """The events that a turn took; `stored` or `failed` must be called."""

    seen: Seen
    _waiting: tuple[asyncio.Future[Receipt], ...]
    _reported: tuple[asyncio.Future[None], ...] = ()

    def stored(self, receipts: Sequence[Receipt]) -> None:
        """Resolves the futures. `receipts`: of the last lines, in order."""
        for future, receipt in zip(self._waiting, receipts, strict=True):
            if not future.done():
                future.set_result(receipt)
        for notice in self._reported:
            if not notice.done():
                notice.set_result(None)

    def failed(self, error: BaseException) -> None:
        """Fails the futures, as nothing was stored."""
        futures: tuple[asyncio.Future[Any], ...] = (*self._waiting, *self._reported)
        for future in futures:
            if isinstance(error, Exception) and not future.done():
                future.set_exception(error)
            else:
                future.cancel()


class Inbox:
    """The inbox of one experiment: what happened since its last turn."""

    def __init__(self) -> None:
        self._news = Seen()
        #: Futures for last lines or exit reports among the news, in order, which resolve when these are stored.
        self._waiting: list[asyncio.Future[Receipt]] = []
        self._exits: list[asyncio.Future[None]] = []
        #: Names of jobs observed by this process, until they are forgotten.
        self.heard: set[str] = set()
        #: Job → its last observation in this inbox.
        self._reported: dict[str, Observation] = {}
        self._rung = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None
        #: Holds that a turn is storing: the experiment's, and those of services.
        self._hold_taken: Hold | None = None
        self._holds_taken: dict[str, Hold] = {}
        self._corruption: StoreCorrupt | None = None
        #: Forgotten jobs may leave checkpoints that are removed with them, as `keepCheckpoints` says.
        self.removes_checkpoints = False

    # Events

    def accepted(self, handle: JobHandle) -> None:
        """The platform accepted the job."""
        self._reported.pop(handle.job_name, None)  # it concerned an earlier submission of this name
        self._news.handles.append(handle)
        self.wake_late()

    def refused(self, job_name: str) -> None:
        """The platform certainly did not accept the job: its intent is withdrawn."""
        self._news.refused.append(job_name)
        self.wake()

    def forgotten(self, job_names: Sequence[str]) -> None:
        """The platform has removed these jobs. Starts no turn, unless checkpoints are removed with them."""
        self._news.forgotten += job_names
        self.heard.difference_update(job_names)
        for name in job_names:
            self._reported.pop(name, None)
        if self.removes_checkpoints:
            self.wake_soon()

    def removed_checkpoints(self, trial_ids: Collection[str]) -> None:
        """The checkpoints of these trials are removed."""
        self._news.without_checkpoints += trial_ids
        self.wake_soon()

    def report(self, reports: Mapping[str, Observation], decided: Collection[str] = ()) -> None:
        """Observations of platform or runner. A later state replaces an earlier one; the first final state wins.
        `decided`: jobs of closed attempts; only their end is stored, without a turn of its own.

        A service observes a job at each of its changes, and most change nothing here.
        """
        self.heard.update(reports)
        has_news = is_other_state = is_end = False
        for name, report in reports.items():
            is_decided = name in decided
            if not self._is_news(name, report, is_decided):
                continue
            has_news = True
            self._keep_later(name, report)
            if not is_decided:
                is_other_state |= report.state is not self._reported_state(name)
                is_end |= report.state.is_final
                self._reported[name] = report
        if is_end:
            self.wake()
        elif is_other_state:
            self.wake_soon()
        elif has_news:
            self.wake_late()

    def _keep_later(self, name: str, report: Observation) -> None:
        before = self._news.reports.get(name)
        if before is None or (_WEIGHT[report.state] >= _WEIGHT[before.state] and not before.state.is_final):
            self._news.reports[name] = report

    def _is_news(self, name: str, report: Observation, is_decided: bool) -> bool:
        """Whether an observation may change the stored state. An end always may: one that came before its last lines
        was not stored."""
        if report.state.is_final:
            return True
        return not is_decided and (report.state is JobState.UNKNOWN or report != self._reported.get(name))

    def _reported_state(self, name: str) -> JobState:
        reported = self._reported.get(name)
        return JobState.PENDING if reported is None else reported.state

    def last_lines(self, chunk: OutboxPart, end: Observation | None) -> asyncio.Future[Receipt]:
        """The last lines of a job with its end, or with its runner's exit report, stored in one commit."""
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._news.last_lines.append(chunk)
        self._waiting.append(future)
        if end is None:
            self.wake()
        else:
            self.report({chunk.job_name: end})
        return future

    def exited(self, job_name: str, runner_exit: str) -> asyncio.Future[None]:
        """A runner's exit report; the first one counts. The future resolves after the commit."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._news.runner_exits.append((job_name, runner_exit))
        self._exits.append(future)
        self.wake()
        return future

    def put_on_hold(self, hold: Hold, service: str = "") -> None:
        """Puts the experiment on hold, or one of its training services."""
        if service:
            self._news.holds[service] = hold
        else:
            self._news.hold = hold
        self.wake()

    def end_hold(self, service: str) -> None:
        """Ends a training service's hold for refused credentials, if it is on one."""
        held = self._news.holds.get(service)
        if held is not None and held.code is HoldCode.BAD_CREDENTIALS:
            del self._news.holds[service]
        self._news.ended_holds.append(service)
        self.wake()

    def give_up(self, error: StoreCorrupt) -> None:
        """The database is corrupt; the next turn raises the error."""
        self._corruption = error
        self.wake()

    @property
    def hold(self) -> Hold | None:
        """The experiment's hold that is not stored yet; None: there is none."""
        return self._news.hold or self._hold_taken

    def hold_of(self, service: str) -> Hold | None:
        """A training service's hold that is not stored yet; None: there is none."""
        return self._news.holds.get(service) or self._holds_taken.get(service)

    # The turn

    def take(
        self, *, judged_bad: Sequence[str], failure: Hold | None, clock_step_ms: int = 0, apart_ms: int = 0
    ) -> Taken:
        """Takes all events. `judged_bad`, `failure`: of the tuner feed; clock fields: as in `Seen`."""
        seen, self._news = self._news, Seen()
        self._hold_taken, self._holds_taken = seen.hold, seen.holds
        seen.judged_bad, seen.hold = list(judged_bad), seen.hold or failure
        seen.clock_step_ms, seen.apart_ms = clock_step_ms, apart_ms
        taken = Taken(seen, tuple(self._waiting), tuple(self._exits))
        self._waiting, self._exits = [], []
        return taken

    def stored(self) -> None:
        """The events of the last `take` are stored."""
        self._hold_taken, self._holds_taken = None, {}

    def lost(self) -> None:
        """The events of the last `take` are not stored: repeated reports count as news."""
        self._hold_taken, self._holds_taken = None, {}
        self._reported.clear()

    @property
    def is_empty(self) -> bool:
        """Whether it has no events."""
        return self._news == Seen()

    # The wake-up

    def wake(self) -> None:
        """Starts the next turn at once; several calls before it cause one turn."""
        self._rung.set()

    def wake_soon(self) -> None:
        """Starts the next turn within `GATHER_S`."""
        self._wake_within(GATHER_S)

    def wake_late(self) -> None:
        """Starts the next turn within `DETAIL_S`."""
        self._wake_within(DETAIL_S)

    def _wake_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._soon is not None and self._soon.when() > loop.time() + seconds:
            self._soon.cancel()
            self._soon = None
        if self._soon is None:
            self._soon = loop.call_later(seconds, self.wake)

    def begin_turn(self) -> None:
        """Clears the wake-up at the start of a turn. Raises StoreCorrupt."""
        if self._corruption is not None:
            raise self._corruption
        self._rung.clear()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    async def wait(self, seconds: float) -> None:
        """Waits for the wake-up, at most `seconds`."""
        if seconds <= 0:
            return
        alarm = asyncio.get_running_loop().call_later(seconds, self.wake)
        try:
            await self._rung.wait()
        finally:
            alarm.cancel()
