"""Results on their way into the store: parsed here, written in the order they came.

The last lines of a job that has ended go into the very turn that takes in its end: one commit instead of two, and one
way to the writer and back, which is much of what a short trial costs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from nni_manager import __version__
from nni_manager.domain import outbox, version
from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import StoreCorrupt, VersionRefused
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.text import spelled
from nni_manager.platform_kit.contract import Delivery
from nni_manager.scheduler import experiment_log
from nni_manager.scheduler.live_spec import LiveSpec
from nni_manager.scheduler.turns.inbox import Inbox
from nni_manager.scheduler.turns.tally import tally
from nni_manager.store.database import Database
from nni_manager.store.experiment import metrics, runners
from nni_manager.store.experiment.metrics import OutboxPart, Receipt, Stored
from nni_manager.store.experiment.runners import RunnerSide
from trial_runner import protocol
from trial_runner.wire.foreign_files import MOST_NAMES

log = logging.getLogger(__name__)

#: Lines of an outbox that are parsed in one go, in a millisecond or two.
_LINES_AT_A_TIME = 250
#: Causes of broken lines that are named of one outbox, and outboxes for which it is remembered which were.
_MOST_CAUSES = 10
_MOST_NAMED = 1000


class Deliveries:
    """The deliveries of one experiment's jobs."""

    def __init__(self, database: Database, inbox: Inbox, clock: Clock) -> None:
        self._database = database
        self._inbox = inbox
        self._clock = clock
        self._parsing = asyncio.Lock()
        #: Causes of broken lines that were named, by job and outbox.
        self._named: dict[tuple[str, str], set[str]] = {}

    async def store(
        self,
        job_name: str,
        name: str,
        start: int,
        end: int,
        lines: Sequence[str],
        ended: Observation | None,
        container: str = "",
        word: str = "",
    ) -> Receipt:
        """Ends when the lines are committed. `ended`: they are the last, and this is how the job ended; `word`: its
        runner's about that."""
        name = spelled(name)  # one that no text column takes would undo the whole turn, and every turn after it
        async with self._parsing:  # what comes later must not overtake
            parsed = await _parse(name, lines)
            dropped = self._complain(job_name, name, parsed)
            chunk = OutboxPart(
                job_name=job_name,
                outbox=name,
                start=start,
                end=end,
                lines=parsed.count,
                metrics=parsed.metrics,
                container=container,
                doubt=_doubt(name, lines) or dropped,
                word=word,
            )
            storing = self._start(chunk, ended)
        receipt = await storing
        if receipt.doubt:
            log.warning("results of job %s: %s", job_name, receipt.doubt, extra={"action": "doubt"})
        if receipt.stored is Stored.NEW:
            tally.results += len(chunk.metrics)
        return receipt

    def _complain(self, job_name: str, name: str, parsed: outbox.Lines) -> str:
        """Names each cause once for each outbox: a trial that writes nonsense must not fill its experiment's log.

        Answers the sentence about the first line of the outbox that was dropped; empty: none was, or it was told.
        """
        if not parsed.broken:
            return ""
        if len(self._named) > _MOST_NAMED:
            self._named.clear()
        named = self._named.setdefault((job_name, name), set())
        is_first = not named
        for cause in [cause for cause in parsed.broken if cause not in named][: _MOST_CAUSES - len(named)]:
            named.add(cause)
            log.warning(
                "a result of job %s was dropped, and all later ones like it: %s: %s",
                job_name,
                name,
                parsed.broken[cause],
                extra={"action": "broken"},
            )
        return f"a line of {name} was dropped: {next(iter(parsed.broken.values()))}" if is_first else ""

    def _start(self, chunk: OutboxPart, ended: Observation | None) -> asyncio.Future[Receipt]:
        if chunk.word:
            return self._inbox.lines_with_word(chunk)
        if ended is None:
            return self._database.start_write(lambda c: metrics.store(c, chunk, self._clock()))
        return self._inbox.end_with_lines(chunk, ended)


def _doubt(name: str, lines: Sequence[str]) -> str:
    """Why a result may be missing of which no line was parsed; empty: there is no reason."""
    if protocol.NOT_READ in lines:
        return (
            f"there are more files in {protocol.OUTBOX_FOLDER}/ than are looked at ({MOST_NAMES}): some were not read"
        )
    if protocol.TOO_LONG not in lines:
        return ""
    return f"a result of {name} was dropped: it {outbox.TOO_LONG}"


def delivery(receipt: Receipt) -> Delivery:
    """The receipt as an adapter gets it."""
    return Delivery(resend=receipt.stored is Stored.GAP)


async def _parse(name: str, lines: Sequence[str]) -> outbox.Lines:
    """The records in these lines, parsed in pieces, so that others have their turn: 6,000 lines take 30 ms."""
    is_nni = name == protocol.METRICS_FILE or name.startswith(f"{protocol.METRICS_FILE}/")
    parse = outbox.parse_nni if is_nni else outbox.parse
    if len(lines) <= _LINES_AT_A_TIME:
        return parse(lines)
    parts = []
    for first in range(0, len(lines), _LINES_AT_A_TIME):
        parts.append(parse(lines[first : first + _LINES_AT_A_TIME], first))
        await asyncio.sleep(0)
    return outbox.joined(parts)


class JobMessages:
    """The news of an experiment's jobs.

    `judge`: called with a trial that has new intermediate results; `changed`: after everything that clients might want
    to see.
    """

    def __init__(
        self,
        *,
        experiment_id: str,
        spec: LiveSpec,
        database: Database,
        inbox: Inbox,
        deliveries: Deliveries,
        judge: Callable[[str], None],
        changed: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._experiment_id = experiment_id
        self._spec = spec
        self._database = database
        self._inbox = inbox
        self._deliveries = deliveries
        self._judge = judge
        self._changed = changed
        self._clock = clock

    async def deliver(
        self,
        job_name: str,
        outbox: str,
        start: int,
        end: int,
        lines: Sequence[str],
        ended: Observation | None = None,
        container: str = "",
    ) -> Delivery:
        """As `store`, for who can do nothing but send again."""
        return delivery(await self.store(job_name, outbox, start, end, lines, ended, container))

    async def store(
        self,
        job_name: str,
        outbox: str,
        start: int,
        end: int,
        lines: Sequence[str],
        ended: Observation | None = None,
        container: str = "",
        word: str = "",
    ) -> Receipt:
        """Stores lines of an outbox, and the end of its job, or its runner's word about that, if they were the last;
        ends when they are committed."""
        experiment_log.current.set(self._experiment_id)  # the caller's task may be anybody's
        try:
            receipt = await self._deliveries.store(job_name, outbox, start, end, lines, ended, container, word)
        except StoreCorrupt as error:
            self._inbox.give_up(error)  # the platform would only offer the lines again
            raise
        if receipt.has_intermediates:
            self._judge(receipt.trial_id)
        if receipt.may_complete:
            self._inbox.wake()
        self._changed()
        return receipt

    async def greet(
        self,
        job_name: str,
        runner_version: str | None,
        channel: str,
        manager_version: str = __version__,
        *,
        container: str = "",
        outboxes: Mapping[str, int] | None = None,
    ) -> None:
        """A runner says what it is. Raises VersionRefused, AttemptDecided; see `store.experiment.runners.greet`.

        A version that is refused fails the trial, and the experiment is in ERROR.
        """
        if refusal := self._refusal(manager_version, runner_version):
            self._refuse(job_name, refusal)
        told = runner_version or "unknown"
        await self._database.try_write(
            lambda c: runners.greet(c, job_name, version=told, channel=channel, container=container, outboxes=outboxes)
        )

    async def admit(
        self,
        trial_id: str,
        attempt: int,
        runner_version: str | None,
        channel: str,
        manager_version: str,
        *,
        container: str,
        outboxes: Mapping[str, int] | None,
    ) -> RunnerSide:
        """As `greet`, of an attempt that is looked up and answered; one that is decided hears nothing of versions.

        Raises NotFound, too.
        """
        if refusal := self._refusal(manager_version, runner_version):
            side = await self._database.read(lambda c: runners.find(c, trial_id, attempt))
            return side if side.is_decided else self._refuse(side.job_name, refusal)
        told = runner_version or "unknown"
        return await self._database.try_write(
            lambda c: runners.admit(
                c, trial_id, attempt, version=told, channel=channel, container=container, outboxes=outboxes
            )
        )

    def _refusal(self, manager_version: str, runner_version: str | None) -> str:
        """Why a runner's version does not fit; empty: it does, or is not looked at."""
        return version.refusal(manager_version, runner_version) if self._spec.now.checks_version else ""

    def _refuse(self, job_name: str, refusal: str) -> NoReturn:
        report = Observation(state=JobState.FAILED, cause=Reason.VERSION_MISMATCH, message=refusal)
        self._inbox.report({job_name: report})
        raise VersionRefused(refusal)

    async def exited(self, job_name: str, word: str) -> None:
        """A runner says how its command ended; the first word counts. Ends when it is stored."""
        await self._inbox.exited(job_name, word)
