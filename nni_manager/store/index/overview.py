"""One experiment at a glance: what the API's description of it and its page are made from."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nni_manager.domain.experiment import ExperimentWarning, Hold, StoredExperiment
from nni_manager.domain.service import LiveService, ServiceStatus
from nni_manager.store import stored_config
from nni_manager.store.experiment import experiments, services
from nni_manager.store.index import list_summary
from nni_manager.store.index.list_summary import Best, Glance


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """An experiment as only the daemon that works on it knows it."""

    #: Whether anybody works on it.
    at_work: bool
    #: A hold that is not recorded, because it ends by itself or nobody can open the experiment.
    derived_hold: Hold | None
    #: What is wrong besides, with its endpoint for instance; empty when all is well.
    problem: str
    #: What the daemon knows that refuses nothing.
    warnings: tuple[ExperimentWarning, ...] = ()
    #: Its training services, while somebody works on it.
    services: tuple[LiveService, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSummary:
    """A training service of it."""

    name: str
    platform: str
    #: None: nobody works on the experiment.
    status: ServiceStatus | None
    #: Since when it is so; None: not known.
    since_ms: int | None
    #: What is wrong with it, or why it has no room; empty when all is well.
    sentence: str
    #: Jobs it has room for; None: as many as one likes, or not known.
    room: int | None
    #: Trials it may have at a time; None: as many as the experiment.
    limit: int | None
    #: Attempts that it was given and that have not ended.
    open_attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Recorded state and what is known only now, put together."""

    row: StoredExperiment
    #: Canonical; secrets included: never log it, mask it before it leaves.
    config: Mapping[str, Any] = field(repr=False)
    hold: Hold | None
    #: Everything that keeps it from going on, a sentence each.
    errors: tuple[str, ...]
    #: What the user should know and what keeps it from nothing: of its file first.
    warnings: tuple[ExperimentWarning, ...]
    #: Milliseconds spent active.
    exec_ms: int
    glance: Glance
    #: As in the config; removed ones come last.
    services: tuple[ServiceSummary, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """Trials by status, only those that occur."""
        return self.glance.counts

    @property
    def best(self) -> Best | None:
        return self.glance.best

    @property
    def platform(self) -> str:
        """Names joined by comma when there are several."""
        return stored_config.platform(self.config)


def load(connection: sqlite3.Connection, live: Live, now_ms: int) -> Overview:
    """Reads it in a handful of queries."""
    row = experiments.load(connection)
    config = json.loads(row.config)
    return Overview(
        row=row,
        config=config,
        hold=hold(row, live),
        errors=errors(row, live),
        warnings=(*experiments.warnings(connection), *_was_on_hold(row, live), *live.warnings),
        exec_ms=exec_ms(row, live, now_ms),
        glance=list_summary.load(connection, config),
        services=_services(connection, config, live),
    )


def _services(connection: sqlite3.Connection, config: Mapping[str, Any], live: Live) -> tuple[ServiceSummary, ...]:
    """The training services of an experiment; of a closed one that an earlier version made, its config alone tells."""
    sections = stored_config.services(config)
    known = {service.name: service for service in live.services}
    rows, attempts = services.load(connection), services.open_attempts(connection)
    removed = [name for name in {**known, **rows} if name not in sections]
    found = []
    for name in (*sections, *removed):
        row, now, section = rows.get(name), known.get(name), sections.get(name, {})
        hold = row.hold if row is not None else None
        status, since_ms, sentence = _condition(now, hold, is_removed=name not in sections)
        platform = now.platform if now else str((section or (row.settings if row else {})).get("platform", ""))
        found.append(
            ServiceSummary(
                name=name,
                platform=platform,
                status=status,
                since_ms=since_ms,
                sentence=sentence,
                room=now.free if now else None,
                limit=section.get("trialConcurrency"),
                open_attempts=attempts.get(name, 0),
            )
        )
    return tuple(found)


def _condition(
    now: LiveService | None, hold: Hold | None, *, is_removed: bool
) -> tuple[ServiceStatus | None, int | None, str]:
    """Status, since when, sentence."""
    if is_removed:
        return ServiceStatus.REMOVED, None, now.trouble if now else ""
    if hold is not None and now is not None:
        return ServiceStatus.ON_HOLD, now.since_ms, hold.sentence
    if now is None:
        return None, None, ""
    return now.status, now.since_ms, now.trouble or (now.full.sentence if now.full else "")


def hold(row: StoredExperiment, live: Live) -> Hold | None:
    """The hold of an experiment; None for a closed one, where nothing waits."""
    return (row.hold or live.derived_hold) if live.at_work else live.derived_hold


def _was_on_hold(row: StoredExperiment, live: Live) -> Iterator[ExperimentWarning]:
    """The warning that an experiment was on hold when it was closed: people want to know why nothing went on."""
    if row.hold is not None and not live.at_work:
        sentence = f"it was on hold when it was closed: {row.hold.sentence}"
        yield ExperimentWarning(code="WAS_ON_HOLD", message=sentence)


def errors(row: StoredExperiment, live: Live) -> tuple[str, ...]:
    """Everything that keeps it from going on, a sentence each."""
    held = hold(row, live)
    return tuple(filter(None, (row.error, held.sentence if held else "", live.problem)))


def exec_ms(row: StoredExperiment, live: Live, now_ms: int) -> int:
    """Milliseconds spent active, up to now."""
    since = max(0, now_ms - row.counted_ms) if live.at_work and row.is_counting else 0
    return row.exec_ms + since
