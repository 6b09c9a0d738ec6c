"""The training services of an experiment: stored and live state combined."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nni_manager.domain.experiment import Hold
from nni_manager.domain.service import LiveService, ServiceStatus
from nni_manager.store import stored_config
from nni_manager.store.experiment import services


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSummary:
    """A training service of an experiment."""

    name: str
    platform: str
    #: None: the experiment's loop does not run.
    status: ServiceStatus | None
    #: Since when it has this status; None: unknown.
    since_ms: int | None
    #: Its problem, or why it has no room; empty: none.
    sentence: str
    #: Number of jobs it has room for; None: unlimited or unknown.
    room: int | None
    #: Maximum number of trials at a time; None: the experiment's limit.
    limit: int | None
    #: Number of its open attempts.
    open_attempts: int


def summaries(
    connection: sqlite3.Connection, config: Mapping[str, Any], live: Sequence[LiveService]
) -> tuple[ServiceSummary, ...]:
    """The training services of an experiment; one that NNI created has no rows, only its config. `live`: while its loop
    runs."""
    sections = stored_config.services(config)
    known = {service.name: service for service in live}
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
