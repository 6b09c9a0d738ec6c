"""What jobs of an experiment send: results, a runner's greeting, a runner's word about the end.

It comes through an adapter (from a keeper, or read from storage) or through the trial listener (posted by runners).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nni_manager import __version__
from nni_manager.domain import version
from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import StoreCorrupt, VersionRefused
from nni_manager.domain.job import JobReport, JobState
from nni_manager.domain.trial import Reason
from nni_manager.platform_kit.contract import Delivery
from nni_manager.scheduler import experiment_log
from nni_manager.scheduler.deliveries import Deliveries, delivery
from nni_manager.scheduler.inbox import Inbox
from nni_manager.scheduler.live_spec import LiveSpec
from nni_manager.store import runners
from nni_manager.store.database import Database


class JobMessages:
    """One per experiment. `judge`: called with a trial that has new intermediate results; `changed`: after everything
    that clients might want to see."""

    def __init__(
        self, *, experiment_id: str, spec: LiveSpec, database: Database, inbox: Inbox, deliveries: Deliveries,
        judge: Callable[[str], None], changed: Callable[[], None], clock: Clock,
    ) -> None:  # fmt: skip
        self._experiment_id = experiment_id
        self._spec = spec
        self._database = database
        self._inbox = inbox
        self._deliveries = deliveries
        self._judge = judge
        self._changed = changed
        self._clock = clock

    async def deliver(
        self, job_name: str, outbox: str, start: int, end: int, lines: Sequence[str], ended: JobReport | None = None,
        container: str = "",
    ) -> Delivery:  # fmt: skip
        """Stores lines of an outbox, and the end of its job if they were the last; ends when they are committed."""
        experiment_log.current.set(self._experiment_id)  # the caller's task may be anybody's
        try:
            receipt = await self._deliveries.store(job_name, outbox, start, end, lines, ended, container)
        except StoreCorrupt as error:
            self._inbox.give_up(error)  # the platform would only offer the lines again
            raise
        if receipt.has_intermediates:
            self._judge(receipt.trial_id)
        if receipt.may_complete:
            self._inbox.wake()
        self._changed()
        return delivery(receipt)

    async def greet(
        self, job_name: str, runner_version: str | None, channel: str, manager_version: str = __version__, *,
        container: str = "", outboxes: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        """A runner says what it is. Raises VersionRefused, AttemptDecided; see `store.runners.greet`.

        A version that is refused fails the trial, and the experiment is in ERROR.
        """
        refusal = version.refusal(manager_version, runner_version) if self._spec.now.checks_version else ""
        if refusal:
            report = JobReport(state=JobState.FAILED, reason=Reason.VERSION_MISMATCH, message=refusal)
            self._inbox.report({job_name: report})
            raise VersionRefused(refusal)
        told = runner_version or "unknown"
        await self._database.try_write(
            lambda c: runners.greet(c, job_name, version=told, channel=channel, container=container, outboxes=outboxes)
        )

    async def exited(self, job_name: str, word: str) -> None:
        """A runner says how its command ended; the first word counts."""
        now_ms = self._clock()
        await self._database.try_write(lambda c: runners.set_exit(c, job_name, word, now_ms))
        self._inbox.wake()
