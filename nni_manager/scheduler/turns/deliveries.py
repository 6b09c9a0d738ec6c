"""Results of jobs: parsed, and stored in the order they came.

The last lines of an ended job are stored in the turn that stores its end: one commit instead of two, which is a large
part of a short trial's cost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from nni_manager import __version__
from nni_manager.domain import version
from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import StoreCorrupt, VersionRefused
from nni_manager.domain.experiment import LiveSpec
from nni_manager.domain.job import JobState
from nni_manager.domain.metrics import TOO_LONG, Lines, joined_lines, parse_nni, parse_own
from nni_manager.domain.reason import Reason
from nni_manager.domain.text import spelled
from nni_manager.platform_kit.contract import Delivery
from nni_manager.scheduler import experiment_log
from nni_manager.scheduler.turns.inbox import Inbox
from nni_manager.scheduler.turns.turn import tally
from nni_manager.store.database import Database
from nni_manager.store.experiment import metrics, runners
from nni_manager.store.experiment.metrics import OutboxPart, Receipt, Stored
from nni_manager.store.experiment.runners import RunnerSide
from trial_runner import protocol
from trial_runner.wire.foreign_files import MOST_NAMES

log = logging.getLogger(__name__)

#: Warning about the first trial that reported several final results.
FURTHER_FINALS = (
    "trial {} reported more than one final result: the first one counts, and further ones are ignored; report once,"
    " from rank 0"
)
#: Number of lines parsed without yielding, which takes a millisecond or two.
_LINES_AT_A_TIME = 250
#: Maximum number of logged causes of broken lines per outbox, and of outboxes with stored causes.
_MOST_CAUSES = 10
_MOST_NAMED = 1000


class JobMessages:
    """The callbacks for adapters and runners of an experiment.

    `judge`: called with a trial that has new intermediate results; `changed`: called after every visible change.
    """

    def __init__(
        self,
        *,
        experiment_id: str,
        spec: LiveSpec,
        database: Database,
        inbox: Inbox,
        judge: Callable[[str], None],
        changed: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._experiment_id = experiment_id
        self._spec = spec
        self._database = database
        self._inbox = inbox
        self._judge = judge
        self._changed = changed
        self._clock = clock
        self._parsing = asyncio.Lock()
        #: (job, outbox) → causes of broken lines that were logged.
        self._named: dict[tuple[str, str], set[str]] = {}

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
        """As `store`; only returns whether to send again, for adapters."""
        receipt = await self.store(job_name, outbox, start, end, lines, ended, container)
        return Delivery(resend=receipt.stored is Stored.GAP)

    async def store(
        self,
        job_name: str,
        outbox: str,
        start: int,
        end: int,
        lines: Sequence[str],
        ended: Observation | None = None,
        container: str = "",
        runner_exit: str = "",
    ) -> Receipt:
        """Stores lines of an outbox, with the job's end or its runner's exit report if they were the last; returns
        after the commit."""
        experiment_log.current.set(self._experiment_id)  # the caller's task may belong to another experiment
        name = spelled(outbox)  # a name that SQLite rejects would fail the whole turn, and every later one
        async with self._parsing:  # keeps the order
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
                runner_exit=runner_exit,
                most_bytes=self._spec.now.max_result_bytes,
            )
            storing = self._start(chunk, ended)
        try:
            receipt = await storing
        except StoreCorrupt as error:
            self._inbox.give_up(error)  # the platform would only send the lines again
            raise
        self._note(chunk, receipt)
        return receipt

    def _note(self, chunk: OutboxPart, receipt: Receipt) -> None:
        if receipt.doubt:
            log.warning("results of job %s: %s", chunk.job_name, receipt.doubt, extra={"action": "doubt"})
        if receipt.has_first_further_final:
            log.warning("%s", FURTHER_FINALS.format(receipt.trial_id), extra={"action": "further_finals"})
        if receipt.stored is Stored.NEW:
            tally.results += len(chunk.metrics)
        if receipt.has_intermediates:
            self._judge(receipt.trial_id)
        if receipt.may_complete:
            self._inbox.wake()
        self._changed()

    def _complain(self, job_name: str, name: str, parsed: Lines) -> str:
        """Logs each cause of broken lines once per outbox, so that a trial cannot fill the log.

        Returns the sentence about the first dropped line of the outbox; empty: none, or returned before.
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
        if chunk.runner_exit or ended is not None:
            return self._inbox.last_lines(chunk, None if chunk.runner_exit else ended)
        return self._database.start_write(lambda c: metrics.store(c, chunk, self._clock()))

    async def register(
        self,
        job_name: str,
        runner_version: str | None,
        channel: str,
        manager_version: str = __version__,
        *,
        container: str = "",
        outboxes: Mapping[str, int] | None = None,
    ) -> None:
        """Stores a runner's first post, see `store.experiment.runners.register`. Raises VersionRefused, AttemptDecided.

        A refused version fails the trial and puts the experiment into ERROR.
        """
        if refusal := self._refusal(manager_version, runner_version):
            self._refuse(job_name, refusal)
        reported = runner_version or "unknown"
        await self._database.try_write(
            lambda c: runners.register(
                c, job_name, version=reported, channel=channel, container=container, outboxes=outboxes
            )
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
        """As `register`, for an attempt that is looked up and returned; versions are not checked for a closed one.

        Also raises NotFound.
        """
        if refusal := self._refusal(manager_version, runner_version):
            side = await self._database.read(lambda c: runners.find(c, trial_id, attempt))
            return side if side.is_decided else self._refuse(side.job_name, refusal)
        reported = runner_version or "unknown"
        return await self._database.try_write(
            lambda c: runners.admit(
                c, trial_id, attempt, version=reported, channel=channel, container=container, outboxes=outboxes
            )
        )

    def _refusal(self, manager_version: str, runner_version: str | None) -> str:
        """Why a runner's version does not fit; empty: it fits, or is not checked."""
        return version.refusal(manager_version, runner_version) if self._spec.now.checks_version else ""

    def _refuse(self, job_name: str, refusal: str) -> NoReturn:
        report = Observation(state=JobState.FAILED, cause=Reason.VERSION_MISMATCH, message=refusal)
        self._inbox.report({job_name: report})
        raise VersionRefused(refusal)

    async def exited(self, job_name: str, runner_exit: str) -> None:
        """Stores a runner's exit report, if it is the first; returns after the commit."""
        await self._inbox.exited(job_name, runner_exit)


#: Line of an outbox → why results may be missing.
_DOUBTS = {
    protocol.NOT_READ: (
        f"some files in {protocol.OUTBOX_FOLDER}/ were not read: there are more than the limit ({MOST_NAMES}), or"
        " reading them failed"
    ),
    protocol.GONE: (
        f"the trial's folder, or a file in {protocol.OUTBOX_FOLDER}/ that was read before, was missing when the job"
        " ended: results may be missing; run the trial again if you need them"
    ),
}


def _doubt(name: str, lines: Sequence[str]) -> str:
    """Why results may be missing although no line was broken; empty: no reason."""
    doubts = [_DOUBTS[line] for line in (protocol.NOT_READ, protocol.GONE) if line in lines]
    if protocol.TOO_LONG in lines:
        doubts.append(f"a result of {name} was dropped: it {TOO_LONG}")
    return "; ".join(doubts)


async def _parse(name: str, lines: Sequence[str]) -> Lines:
    """Parses lines in pieces and yields to other tasks: 6,000 lines take 30 ms."""
    is_nni = name == protocol.METRICS_FILE or name.startswith(f"{protocol.METRICS_FILE}/")
    parse = parse_nni if is_nni else parse_own
    if len(lines) <= _LINES_AT_A_TIME:
        return parse(lines)
    parts = []
    for first in range(0, len(lines), _LINES_AT_A_TIME):
        parts.append(parse(lines[first : first + _LINES_AT_A_TIME], first))
        await asyncio.sleep(0)
    return joined_lines(parts)
