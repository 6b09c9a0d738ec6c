"""Everything that enters an experiment's next turn, and the wake-up for it.

Whoever has news puts it here; the loop alone takes it out. It knows nobody, so that everybody may know it. What it
holds is in memory until a turn has stored it: whoever dies before finds it out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import StoreCorrupt
from nni_manager.domain.experiment import Hold, HoldCode
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.scheduler.turns.turn import Seen
from nni_manager.store.experiment.metrics import OutboxPart, Receipt

#: Seconds for which news that no decision waits for is gathered, as that a trial runs. A trial that is over by then
#: costs one turn and one commit instead of two, and many that start together do not have a turn each.
GATHER_S = 0.05
#: As above, for what changes no trial: a job was accepted, its pod has a node, the platform confirms an end that is
#: decided. On a cluster that is most of what is told.
DETAIL_S = 0.25
#: How much a state says: nothing, waits, runs, over.
_WEIGHT = {state: 3 if state.is_final else 0 for state in JobState} | {JobState.PENDING: 1, JobState.RUNNING: 2}


@dataclass(frozen=True, slots=True)
class Taken:
    """The part of the inbox that a turn has taken over: it must be called `stored` or `failed`."""

    seen: Seen
    _waiting: tuple[asyncio.Future[Receipt], ...]
    _told: tuple[asyncio.Future[None], ...] = ()

    def stored(self, receipts: Sequence[Receipt]) -> None:
        """`receipts`: of the last lines, in their order."""
        for future, receipt in zip(self._waiting, receipts, strict=True):
            if not future.done():
                future.set_result(receipt)
        for told in self._told:
            if not told.done():
                told.set_result(None)

    def failed(self, error: BaseException) -> None:
        """Tells all who wait for a delivery that nothing of it is stored."""
        futures: tuple[asyncio.Future[Any], ...] = (*self._waiting, *self._told)
        for future in futures:
            if isinstance(error, Exception) and not future.done():
                future.set_exception(error)
            else:
                future.cancel()


@dataclass(slots=True)
class _News:
    """The events since the last turn."""

    handles: list[JobHandle] = field(default_factory=list)
    reports: dict[str, Observation] = field(default_factory=dict)
    last_lines: list[OutboxPart] = field(default_factory=list)
    waiting: list[asyncio.Future[Receipt]] = field(default_factory=list)
    #: (job name, its runner's word about the end), and what waits until they are stored.
    words: list[tuple[str, str]] = field(default_factory=list)
    told: list[asyncio.Future[None]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    holds: dict[str, Hold] = field(default_factory=dict)
    ended_holds: list[str] = field(default_factory=list)
    hold: Hold | None = None


class Inbox:
    """The inbox of one experiment: what happened since its last turn."""

    def __init__(self) -> None:
        self._news = _News()
        #: Jobs that were reported on since this process began, until they are forgotten.
        self.heard: set[str] = set()
        #: By job: the state that was reported last.
        self._told: dict[str, JobState] = {}
        self._rung = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None
        #: Holds on their way into the store: the experiment's, and of services.
        self._hold_taken: Hold | None = None
        self._holds_taken: dict[str, Hold] = {}
        self._corruption: StoreCorrupt | None = None

    # News

    def accepted(self, handle: JobHandle) -> None:
        """A platform took the job."""
        self._news.handles.append(handle)
        self.wake_late()

    def refused(self, job_name: str) -> None:
        """A platform certainly did not take the job: its intent is taken back."""
        self._news.refused.append(job_name)
        self.wake()

    def forgotten(self, job_names: Sequence[str]) -> None:
        """A platform keeps nothing of these jobs any more; no turn is needed for that alone."""
        self._news.forgotten += job_names
        self.heard.difference_update(job_names)
        for name in job_names:
            self._told.pop(name, None)

    def report(self, reports: Mapping[str, Observation], decided: Collection[str] = ()) -> None:
        """Evidence from platform or runner: what says more counts, and of two ends the first. `decided`: jobs whose
        attempt is closed, so that nothing follows."""
        known = self._news.reports
        self.heard.update(reports)
        for name, report in reports.items():
            before = known.get(name)
            if before is None or (_WEIGHT[report.state] >= _WEIGHT[before.state] and not before.state.is_final):
                known[name] = report
        open_ = {name: report.state for name, report in reports.items() if name not in decided}
        is_news = any(state is not self._told.get(name, JobState.PENDING) for name, state in open_.items())
        self._told.update(open_)
        if any(state.is_final for state in open_.values()):
            self.wake()
        elif is_news:
            self.wake_soon()
        else:
            self.wake_late()

    def end_with_lines(self, chunk: OutboxPart, end: Observation) -> asyncio.Future[Receipt]:
        """The last lines of a job that has ended; its end counts when they are stored. Both are one commit."""
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._news.last_lines.append(chunk)
        self._news.waiting.append(future)
        self.report({chunk.job_name: end})
        return future

    def lines_with_word(self, chunk: OutboxPart) -> asyncio.Future[Receipt]:
        """The last lines of a job, with its runner's word about the end. Both are one commit, and what follows from
        them, too."""
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._news.last_lines.append(chunk)
        self._news.waiting.append(future)
        self.wake()
        return future

    def exited(self, job_name: str, word: str) -> asyncio.Future[None]:
        """A runner's word about the end of its command; the first one counts. Ends when it is stored."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._news.words.append((job_name, word))
        self._news.told.append(future)
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
        """Notes that nothing can be read or stored any more; the next turn raises the error."""
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
        """All there is. `judged_bad`, `failure`: what the tuner's side has to say; the clocks: as `Seen` has them."""
        news, self._news = self._news, _News()
        self._hold_taken, self._holds_taken = news.hold, news.holds
        seen = Seen(
            handles=tuple(news.handles),
            reports=news.reports,
            last_lines=tuple(news.last_lines),
            words=tuple(news.words),
            refused=tuple(news.refused),
            forgotten=tuple(news.forgotten),
            judged_bad=tuple(judged_bad),
            holds=news.holds,
            ended_holds=tuple(news.ended_holds),
            hold=news.hold or failure,
            clock_step_ms=clock_step_ms,
            apart_ms=apart_ms,
        )
        return Taken(seen, tuple(news.waiting), tuple(news.told))

    def stored(self) -> None:
        """Notes that the part taken last is in the store."""
        self._hold_taken, self._holds_taken = None, {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits for a turn."""
        return self._news == _News()

    # The wake-up

    def wake(self) -> None:
        """Has the next turn begin at once, as something happened. Many calls before it are one."""
        self._rung.set()

    def wake_soon(self) -> None:
        """Something happened that can wait a moment for company."""
        self._wake_within(GATHER_S)

    def wake_late(self) -> None:
        """Something happened that changes no trial."""
        self._wake_within(DETAIL_S)

    def _wake_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._soon is not None and self._soon.when() > loop.time() + seconds:
            self._soon.cancel()
            self._soon = None
        if self._soon is None:
            self._soon = loop.call_later(seconds, self.wake)

    def begin_turn(self) -> None:
        """Begins a turn, which looks at all that has happened until now. Raises StoreCorrupt."""
        if self._corruption is not None:
            raise self._corruption
        self._rung.clear()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    async def wait(self, seconds: float) -> None:
        """Waits until something happens, at most so many seconds."""
        if seconds <= 0:
            return
        alarm = asyncio.get_running_loop().call_later(seconds, self.wake)
        try:
            await self._rung.wait()
        finally:
            alarm.cancel()
