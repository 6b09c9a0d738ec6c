"""Results on their way into the store: parsed here, written in the order they came.

The last lines of a job that has ended go into the very turn that takes in its end: one commit instead of two, and one
way to the writer and back, which is much of what a short trial costs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from nni_manager.domain import outbox
from nni_manager.domain.clock import Clock
from nni_manager.domain.job import JobReport
from nni_manager.domain.text import spelled
from nni_manager.platform_kit.contract import Delivery
from nni_manager.scheduler.inbox import Inbox
from nni_manager.scheduler.tally import tally
from nni_manager.store import metrics
from nni_manager.store.database import Database
from nni_manager.store.metrics import Chunk, Receipt, Stored
from trial_runner import protocol

log = logging.getLogger(__name__)

#: Lines of an outbox that are parsed in one go, in a millisecond or two.
_LINES_AT_A_TIME = 250
#: Causes of broken lines that are named of one outbox, and outboxes for which it is remembered which were.
_MOST_CAUSES = 10
_MOST_NAMED = 1000


class Deliveries:
    """One per experiment."""

    def __init__(self, database: Database, inbox: Inbox, clock: Clock) -> None:
        self._database = database
        self._inbox = inbox
        self._clock = clock
        self._parsing = asyncio.Lock()
        #: Causes of broken lines that were named, by job and outbox.
        self._named: dict[tuple[str, str], set[str]] = {}

    async def store(
        self, job_name: str, name: str, start: int, end: int, lines: Sequence[str], ended: JobReport | None,
        container: str = "",
    ) -> Receipt:  # fmt: skip
        """Ends when the lines are committed. `ended`: they are the last, and this is how the job ended."""
        name = spelled(name)  # one that no text column takes would undo the whole turn, and every turn after it
        async with self._parsing:  # what comes later must not overtake
            parsed = await _parse(name, lines)
            self._complain(job_name, name, parsed)
            chunk = Chunk(
                job_name=job_name, outbox=name, start=start, end=end, lines=parsed.count, metrics=parsed.metrics,
                container=container, doubt=_doubt(name, lines),
            )  # fmt: skip
            storing = self._start(chunk, ended)
        receipt = await storing
        if receipt.doubt:
            log.warning("results of job %s: %s", job_name, receipt.doubt, extra={"action": "doubt"})
        if receipt.stored is Stored.NEW:
            tally.results += len(chunk.metrics)
        return receipt

    def _complain(self, job_name: str, name: str, parsed: outbox.Lines) -> None:
        """Each cause once for each outbox: a trial that writes nonsense must not fill its experiment's log."""
        if not parsed.broken:
            return
        if len(self._named) > _MOST_NAMED:
            self._named.clear()
        named = self._named.setdefault((job_name, name), set())
        for cause in [cause for cause in parsed.broken if cause not in named][: _MOST_CAUSES - len(named)]:
            named.add(cause)
            log.warning(
                "a result of job %s was dropped, and all later ones like it: %s: %s", job_name, name,
                parsed.broken[cause], extra={"action": "broken"},
            )  # fmt: skip

    def _start(self, chunk: Chunk, ended: JobReport | None) -> asyncio.Future[Receipt]:
        if ended is None:
            return self._database.start_write(lambda c: metrics.store(c, chunk, self._clock()))
        return self._inbox.end_with_lines(chunk, ended)


def _doubt(name: str, lines: Sequence[str]) -> str:
    """A line that is no result is often none of ours; one that was too long to be read may have been the result."""
    if protocol.TOO_LONG not in lines:
        return ""
    return f"a result of {name} was dropped: it {outbox.TOO_LONG}"


def delivery(receipt: Receipt) -> Delivery:
    """What an adapter is told of it."""
    return Delivery(resend=receipt.stored is Stored.GAP)


async def _parse(name: str, lines: Sequence[str]) -> outbox.Lines:
    """In pieces, between which others have their turn: six thousand lines take 30 ms."""
    is_nni = name == protocol.METRICS_FILE or name.startswith(f"{protocol.METRICS_FILE}/")
    parse = outbox.parse_nni if is_nni else outbox.parse
    if len(lines) <= _LINES_AT_A_TIME:
        return parse(lines)
    parts = []
    for first in range(0, len(lines), _LINES_AT_A_TIME):
        parts.append(parse(lines[first : first + _LINES_AT_A_TIME], first))
        await asyncio.sleep(0)
    return outbox.joined(parts)
