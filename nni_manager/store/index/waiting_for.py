"""What an experiment that makes no progress waits for: a service, machines, or a place for its next trial."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from nni_manager.domain.service import ServiceStatus, WaitCode
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store.index.service_summary import ServiceSummary

#: Reasons that pass within moments, or that a hold explains better.
_ORDINARY = (WaitCode.CONCURRENCY, WaitCode.SUBMITTED, WaitCode.RETRY, WaitCode.HOLD)
_UNREACHABLE = (
    "SELECT count(*), min(unreachable_ms), min(unreachable) FROM attempts"
    " WHERE forgotten = 0 AND closed = 0 AND unreachable_ms IS NOT NULL"
)
_OF_TRIALS = (
    "SELECT wait_code, wait_sentence, wait_ms FROM trials WHERE status = ?"
    " AND NOT EXISTS (SELECT 1 FROM trials WHERE status = ?) ORDER BY sequence_id LIMIT 1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFor:
    """Why an experiment makes less progress than it could."""

    sentence: str
    #: Its start, in milliseconds since the epoch; None: unknown.
    since_ms: int | None


def load(connection: sqlite3.Connection, services: Sequence[ServiceSummary]) -> WaitingFor | None:
    """What the experiment waits for; None: nothing that lasts. `services`: with their live state."""
    troubled = [one for one in services if one.status in (ServiceStatus.AWAY, ServiceStatus.ON_HOLD)]
    for service in troubled:
        sentence = f"{service.name} is {service.status}" + (f": {service.sentence}" if service.sentence else "")
        return WaitingFor(sentence=sentence, since_ms=service.since_ms)
    if not any(one.status for one in services):
        return None
    jobs, since_ms, why = connection.execute(_UNREACHABLE).fetchone()
    if jobs:
        what = "1 job is" if jobs == 1 else f"{jobs} jobs are"
        return WaitingFor(sentence=f"{what} unreachable: {why}", since_ms=since_ms)
    found = connection.execute(_OF_TRIALS, (TrialStatus.WAITING, TrialStatus.RUNNING)).fetchone()
    if found is None or found[0] in ("", *_ORDINARY):
        return None
    return WaitingFor(sentence=found[1], since_ms=found[2])
