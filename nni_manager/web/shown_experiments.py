"""Experiments as their pages show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.trial import FAILED_STATUSES, OPEN_STATUSES, TrialStatus
from nni_manager.scheduler import no_more_trials
from nni_manager.store.connection import Connection
from nni_manager.store.index import overview
from nni_manager.store.index.index import Entry
from nni_manager.store.index.overview import Overview
from nni_manager.web.experiment import progress
from nni_manager.web.experiment.progress import Progress

if TYPE_CHECKING:
    from nni_manager.web.rendering import PagesContext

_ORDER = (
    TrialStatus.SUCCEEDED,
    TrialStatus.EARLY_STOPPED,
    TrialStatus.FAILED,
    TrialStatus.USER_CANCELED,
    TrialStatus.SYS_CANCELED,
    TrialStatus.RUNNING,
    TrialStatus.UNKNOWN,
    TrialStatus.WAITING,
)
#: Other experiments that the head leads to.
_OTHERS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownExperiment:
    """The head of an experiment's pages."""

    overview: Overview
    entry: Entry
    at_work: bool
    progress: Progress
    #: URL of its endpoint; empty: none.
    endpoint_url: str
    #: (id, name) of other experiments, newest first.
    others: list[tuple[str, str]]

    @property
    def name(self) -> str:
        return self.entry.name or self.entry.id

    @property
    def status(self) -> ExperimentStatus:
        return status(self.overview, self.entry, at_work=self.at_work)

    @property
    def no_more_trials(self) -> str:
        return no_more_trials.sentence(self.overview)

    @property
    def counts(self) -> dict[TrialStatus, int]:
        """Trials by status, those that occur, ended ones first."""
        counts = self.overview.counts
        return {status: counts[status] for status in _ORDER if counts.get(status)}

    @property
    def failed(self) -> int:
        """Trials that failed, by their own code or by their platform."""
        return sum(self.overview.counts.get(status, 0) for status in FAILED_STATUSES)

    @property
    def is_viewed(self) -> bool:
        return self.status is ExperimentStatus.VIEWED

    @property
    def may_stop(self) -> bool:
        return self.at_work or self.is_viewed

    @property
    def may_resume(self) -> bool:
        return not self.at_work or bool(self.overview.hold) or self.overview.row.status is ExperimentStatus.ERROR

    @property
    def limits(self) -> dict[str, Any]:
        """The limits as in the config; None: no limit."""
        names = ("trialConcurrency", "maxTrialNumber", "maxExperimentDuration", "maxTrialDuration")
        return {name: self.overview.config.get(name) for name in names}


async def shown(context: PagesContext, id: str) -> ShownExperiment:
    """The head of an experiment's pages. Raises NotFound or StoreError."""
    service, now_ms = context.service, context.clock()
    live = service.live(id)

    def read(connection: Connection) -> tuple[Overview, Progress]:
        found = overview.load(connection, live, now_ms)
        return found, progress.of(connection, found, now_ms)

    entry = await service.entry(id)
    found, now = await service.read(id, read)
    return ShownExperiment(
        overview=found,
        entry=entry,
        at_work=live.at_work,
        progress=now,
        endpoint_url=service.endpoint_url(entry.endpoint) if entry.endpoint is not None else "",
        others=[(one.id, one.name or one.id) for one in (await service.entries())[: -_OTHERS - 1 : -1] if one.id != id],
    )


async def config_of(context: PagesContext, id: str) -> Mapping[str, Any]:
    """The config, secrets included. Raises NotFound or StoreError."""
    live, now_ms = context.service.live(id), context.clock()
    await context.service.entry(id)
    return (await context.service.read(id, lambda c: overview.load(c, live, now_ms))).config


def status(found: Overview, entry: Entry, *, at_work: bool) -> ExperimentStatus:
    """The displayed status: the database does not know of views, and may not know yet of a stop."""
    return entry.status if entry.status.is_closed and not at_work else found.row.status


def ended(found: Overview) -> int:
    """Trials that have ended, with any status."""
    return sum(count for status, count in found.counts.items() if status not in OPEN_STATUSES)
