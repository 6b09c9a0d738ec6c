"""Jobs that may still run although their experiment is stopped or deleted, as rows of the index."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverJobs:
    """Jobs that an experiment has left on one of its training services."""

    experiment_id: str
    service: str
    platform: str
    #: `Platform.connection_key`: the next experiment that connects there ends them.
    connection: str
    #: The service's section; secrets are references.
    section: Mapping[str, Any]
    #: Reference → value.
    secrets: Mapping[str, str] = field(repr=False)
    #: Empty: the jobs are found by the experiment's id.
    job_names: tuple[str, ...]
    #: Why they could not be ended.
    sentence: str
    noted_ms: int
    #: Number of jobs that may run; the others only left files. None: unknown.
    may_run: int | None = None
    #: See `platform_kit.contract.Host`.
    storage_key: str = ""


_COLUMNS = (
    "experiment, service, platform, connection, section, secrets, job_names, sentence, noted_ms, may_run, storage_key"
)


def put(connection: sqlite3.Connection, left: LeftoverJobs) -> None:
    """Adds or replaces the note of the experiment and service."""
    connection.execute(
        f"INSERT OR REPLACE INTO leftover_jobs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            left.experiment_id,
            left.service,
            left.platform,
            left.connection,
            json.dumps(left.section),
            json.dumps(left.secrets),
            json.dumps(left.job_names),
            left.sentence,
            left.noted_ms,
            left.may_run,
            left.storage_key,
        ),
    )


def drop(connection: sqlite3.Connection, experiment_id: str, service: str) -> None:
    """Removes the note of the experiment and service."""
    connection.execute("DELETE FROM leftover_jobs WHERE experiment = ? AND service = ?", (experiment_id, service))


def load(connection: sqlite3.Connection) -> list[LeftoverJobs]:
    """All notes, oldest first."""
    return [_row(*row) for row in connection.execute(f"SELECT {_COLUMNS} FROM leftover_jobs ORDER BY noted_ms")]


def _row(
    experiment: str,
    service: str,
    platform: str,
    key: str,
    section: str,
    secrets: str,
    names: str,
    sentence: str,
    noted_ms: int,
    may_run: int | None,
    storage_key: str,
) -> LeftoverJobs:
    return LeftoverJobs(
        experiment_id=experiment,
        service=service,
        platform=platform,
        connection=key,
        section=json.loads(section),
        secrets=json.loads(secrets),
        job_names=tuple(json.loads(names)),
        sentence=sentence,
        noted_ms=noted_ms,
        may_run=may_run,
        storage_key=storage_key,
    )
