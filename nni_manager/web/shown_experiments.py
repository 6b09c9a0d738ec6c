"""Values that the pages show of an experiment, and its progress for tiles and events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nni_manager.config.reading.scalars import seconds
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.trial_status import TrialStatus, ended, failed, has_open
from nni_manager.scheduler import no_more_trials
from nni_manager.store.connection import Connection
from nni_manager.store.experiment import trial_reads
from nni_manager.store.experiment.trial_reads import Waiting
from nni_manager.store.index import overview
from nni_manager.store.index.index import Entry
from nni_manager.store.index.overview import Overview
from nni_manager.web.context import PagesContext

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
#: Maximum number of other experiments that the heading links to.
_OTHERS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownExperiment:
    """Values in the heading of an experiment's pages."""

    overview: Overview
    entry: Entry
    at_work: bool
    progress: Progress
    #: URL of its endpoint; empty: no endpoint.
    endpoint_url: str
    #: (id, name) of other experiments, newest first.
    others: list[tuple[str, str]]

    @property
    def status(self) -> ExperimentStatus:
        return status(self.overview, self.entry, at_work=self.at_work)

    @property
    def no_more_trials(self) -> str:
        return no_more_trials.sentence(self.overview)

    @property
    def counts(self) -> dict[TrialStatus, int]:
        """Number of trials by status, ended ones first; statuses without trials are left out."""
        counts = self.overview.counts
        return {status: counts[status] for status in _ORDER if counts.get(status)}

    @property
    def failed(self) -> int:
        """Number of trials that failed, including those that their platform failed."""
        return failed(self.overview.counts)

    @property
    def has_open_trials(self) -> bool:
        return has_open(self.overview.counts)

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
        """The limits in the config; None: no limit."""
        names = ("trialConcurrency", "maxTrialNumber", "maxExperimentDuration", "maxTrialDuration")
        return {name: self.overview.config.get(name) for name in names}


async def shown(context: PagesContext, id: str) -> ShownExperiment:
    """The heading of an experiment's pages. Raises NotFound or StoreError."""
    service, now_ms = context.commands, context.clock()
    live = service.live(id)

    def read(connection: Connection) -> tuple[Overview, Progress]:
        found = overview.load(connection, live, now_ms)
        return found, progress_of(connection, found, now_ms)

    entry = await service.entry(id)
    found, now = await service.read(id, read)
    return ShownExperiment(
        overview=found,
        entry=entry,
        at_work=live.at_work,
        progress=now,
        endpoint_url=service.endpoint_url(entry.endpoint) if entry.endpoint is not None else "",
        others=[(one.id, one.title) for one in (await service.entries())[: -_OTHERS - 1 : -1] if one.id != id],
    )


async def config_of(context: PagesContext, id: str) -> Mapping[str, Any]:
    """The config, secrets included. Raises NotFound or StoreError."""
    live, now_ms = context.commands.live(id), context.clock()
    await context.commands.entry(id)
    return (await context.commands.read(id, lambda c: overview.load(c, live, now_ms))).config


def status(found: Overview, entry: Entry, *, at_work: bool) -> ExperimentStatus:
    """The displayed status. The database does not contain VIEWED, and may not contain a recent stop yet."""
    return entry.status if entry.status.is_closed and not at_work else found.row.status


#: Number of most recently ended trials that the rate is computed from.
_RECENT = 100
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of an experiment."""

    ended: int
    running: int
    #: Maximum number of trials; None: no limit.
    most: int | None
    #: Recent number of trials that end per minute; None: too few trials, or not running.
    per_minute: float | None
    #: Estimated time left in milliseconds; None: unknown.
    left_ms: int | None
    #: Time of the latest start or end of a trial; None: none yet.
    changed_ms: int | None
    waiting: Waiting


def progress_of(connection: Connection, found: Overview, now_ms: int) -> Progress:
    """The progress of the experiment in an overview."""
    done = ended(found.counts)
    most = found.config.get("maxTrialNumber")
    is_active = found.row.is_counting and found.hold is None
    rate = per_minute(trial_reads.ends(connection, _RECENT), now_ms) if is_active else None
    return Progress(
        ended=done,
        running=found.counts.get(TrialStatus.RUNNING, 0) + found.counts.get(TrialStatus.UNKNOWN, 0),
        most=most,
        per_minute=rate,
        left_ms=_left_ms(found, done, most, rate) if is_active else None,
        changed_ms=trial_reads.changed_ms(connection),
        waiting=trial_reads.waiting(connection),
    )


def per_minute(ends: list[int], now_ms: int) -> float | None:
    """Trials per minute. `ends`: at least three times in ms since the epoch, newest first."""
    if len(ends) < 3:
        return None
    return (len(ends) - 1) * _MINUTE_MS / max(1, max(ends[0], now_ms) - ends[-1])


def _left_ms(found: Overview, ended: int, most: int | None, rate: float | None) -> int | None:
    longest = found.config.get("maxExperimentDuration")
    estimates = [seconds(longest) * 1000 - found.exec_ms] if longest is not None else []
    if most is not None and rate:
        estimates.append((most - ended) / rate * _MINUTE_MS)
    return max(0, round(min(estimates))) if estimates else None


async def read_progress(context: PagesContext, id: str) -> dict[str, Any]:
    """The state that events contain. Raises NotFound or StoreError."""
    live, now_ms = context.commands.live(id), context.clock()

    def load(connection: Connection) -> dict[str, Any]:
        found = overview.load(connection, live, now_ms)
        return _as_json(found, progress_of(connection, found, now_ms))

    return await context.commands.read(id, load)


def _as_json(found: Overview, now: Progress) -> dict[str, Any]:
    best, hold = found.best, found.hold
    return {
        "revision": found.row.revision,
        "status": found.row.status,
        "hold": hold and {"code": hold.code, "sentence": hold.sentence},
        "counts": dict(found.counts),
        "best": best and {"trialId": best.trial_id, "value": best.value},
        "rate": now.per_minute,
        "leftMs": now.left_ms,
        "running": now.running,
        "waiting": {"trials": now.waiting.trials, "sentence": now.waiting.sentence},
        "errors": list(found.errors),
    }
