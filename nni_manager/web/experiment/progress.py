"""The progress of an experiment in numbers, as tiles and events of its pages show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nni_manager.config.reading.scalars import seconds
from nni_manager.domain.trial import OPEN_STATUSES, TrialStatus
from nni_manager.store.connection import Connection
from nni_manager.store.experiment import trial_reads
from nni_manager.store.experiment.trial_reads import Waiting
from nni_manager.store.index import overview
from nni_manager.store.index.overview import Overview

if TYPE_CHECKING:
    from nni_manager.web.rendering import PagesContext

#: Trials that ended last, of which the rate is taken.
_RECENT = 100
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an experiment is."""

    ended: int
    running: int
    #: None: no limit.
    most: int | None
    #: Ends of trials per minute of late; None: too few, or nothing runs.
    per_minute: float | None
    #: Estimate of the milliseconds left; None: cannot be told.
    left_ms: int | None
    #: The latest start or end of a trial; None: none yet.
    changed_ms: int | None
    waiting: Waiting


def of(connection: Connection, found: Overview, now_ms: int) -> Progress:
    """The progress of the experiment in an overview."""
    ended = sum(count for status, count in found.counts.items() if status not in OPEN_STATUSES)
    most = found.config.get("maxTrialNumber")
    is_active = found.row.is_counting and found.hold is None
    rate = per_minute(trial_reads.ends(connection, _RECENT), now_ms) if is_active else None
    return Progress(
        ended=ended,
        running=found.counts.get(TrialStatus.RUNNING, 0) + found.counts.get(TrialStatus.UNKNOWN, 0),
        most=most,
        per_minute=rate,
        left_ms=_left_ms(found, ended, most, rate) if is_active else None,
        changed_ms=trial_reads.changed_ms(connection),
        waiting=trial_reads.waiting(connection),
    )


def per_minute(ends: list[int], now_ms: int) -> float | None:
    """The rate of the trials that ended last. `ends`: times in ms since the epoch, newest first; three or more."""
    if len(ends) < 3:
        return None
    return (len(ends) - 1) * _MINUTE_MS / max(1, max(ends[0], now_ms) - ends[-1])


def _left_ms(found: Overview, ended: int, most: int | None, rate: float | None) -> int | None:
    longest = found.config.get("maxExperimentDuration")
    estimates = [seconds(longest) * 1000 - found.exec_ms] if longest is not None else []
    if most is not None and rate:
        estimates.append((most - ended) / rate * _MINUTE_MS)
    return max(0, round(min(estimates))) if estimates else None


async def read(context: PagesContext, id: str) -> dict[str, Any]:
    """The state that events carry. Raises NotFound or StoreError."""
    live, now_ms = context.service.live(id), context.clock()

    def load(connection: Connection) -> dict[str, Any]:
        found = overview.load(connection, live, now_ms)
        return as_json(found, of(connection, found, now_ms))

    return await context.service.read(id, load)


def as_json(found: Overview, now: Progress) -> dict[str, Any]:
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
