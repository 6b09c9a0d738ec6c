"""Rows about trial runners: version, channel and container, and the exit reports of attempts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nni_manager.domain.errors import AttemptDecided, NotFound
from nni_manager.domain.evidence import with_possible_times
from nni_manager.store.experiment import jobs
from trial_runner.wire.outbox_files import file_of, newest_name

#: Maximum number of container ids stored per attempt.
_MOST_CONTAINERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSide:
    """The data of an attempt that its runner may read."""

    job_name: str
    #: The parameter record the trial reads, JSON.
    record: str
    #: The trial, or the whole experiment, is to stop.
    must_stop: bool
    #: Empty until the runner's first post.
    runner_version: str
    #: When its intent was stored, in milliseconds since the epoch: all its events are later.
    intended_ms: int
    #: The training service of its job.
    service: str
    #: Id of its newest container; empty: unknown.
    container: str = ""
    #: The attempt is closed: only logs are accepted.
    is_decided: bool = False
    #: Outbox → number of stored bytes.
    outboxes: Mapping[str, int] = field(default_factory=dict)


def find(connection: sqlite3.Connection, trial_id: str, attempt: int) -> RunnerSide:
    """Raises NotFound."""
    row = connection.execute(
        "SELECT a.job_name, t.record, t.asked <> '' OR e.status = 'STOPPING', a.runner_version,"
        " a.intended_ms, a.service, a.closed, json_extract(a.containers, '$[#-1]')"
        " FROM attempts a JOIN trials t ON t.id = a.trial_id, experiment e WHERE a.trial_id = ? AND a.number = ?",
        (trial_id, attempt),
    ).fetchone()
    if row is None:
        raise NotFound(f"cannot find attempt {attempt} of trial {trial_id}")
    return RunnerSide(
        job_name=row[0],
        record=row[1],
        must_stop=bool(row[2]),
        runner_version=row[3],
        intended_ms=row[4],
        service=row[5],
        container=row[7] or "",
        is_decided=bool(row[6]),
        outboxes=jobs.offsets(connection, row[0]),
    )


def admit(
    connection: sqlite3.Connection,
    trial_id: str,
    attempt: int,
    *,
    version: str,
    channel: str,
    container: str,
    outboxes: Mapping[str, int] | None,
) -> RunnerSide:
    """Looks an attempt up and registers its runner, in one transaction. Raises NotFound, and as `register`.

    A closed attempt is returned unchanged.
    """
    side = find(connection, trial_id, attempt)
    if side.is_decided:
        return side
    stored = register(
        connection, side.job_name, version=version, channel=channel, container=container, outboxes=outboxes
    )
    return replace(side, outboxes=stored)


def register(
    connection: sqlite3.Connection,
    job_name: str,
    *,
    version: str,
    channel: str,
    container: str = "",
    outboxes: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Stores a runner's first post; returns the stored bytes per outbox. Raises AttemptDecided for a container that a
    newer one has replaced.

    `outboxes`: size of each outbox at the container's start, in bytes; None: unknown.
    """
    if container:
        _take_over(connection, job_name, container, outboxes)
    connection.execute(
        "UPDATE attempts SET runner_version = ?, channel = ? WHERE job_name = ? AND closed = 0",
        (version, channel, job_name),
    )
    return jobs.offsets(connection, job_name)


def _take_over(
    connection: sqlite3.Connection, job_name: str, container: str, outboxes: Mapping[str, int] | None
) -> None:
    """Makes this container the current one, and discards the exit report of an earlier one, whose results are kept with
    the earlier epoch."""
    row = connection.execute(
        "SELECT containers FROM attempts WHERE job_name = ? AND closed = 0", (job_name,)
    ).fetchone()
    known: list[str] = [] if row is None else json.loads(row[0])
    if row is None or container in known[-1:]:
        return
    if container in known:
        raise AttemptDecided(SUPERSEDED)
    connection.execute(
        "UPDATE attempts SET containers = ?, runner_exit = NULL, runner_exit_ms = NULL WHERE job_name = ?",
        (json.dumps([*known, container][-_MOST_CONTAINERS:]), job_name),
    )
    if known:
        connection.execute("UPDATE attempts SET epoch = epoch + 1 WHERE job_name = ?", (job_name,))
    if known and outboxes is not None:
        _begin_afresh(connection, job_name, outboxes)


#: The error for a container that a newer one has replaced.
SUPERSEDED = "a newer container of this attempt has registered; no more reports of this one are accepted"


def _begin_afresh(connection: sqlite3.Connection, job_name: str, found: Mapping[str, int]) -> None:
    """Restarts at offset 0 the outboxes that are shorter in the new container than stored: they are other files."""
    stored = jobs.offsets(connection, job_name)
    fresh = [name for name in stored if _has_less(file_of(name, stored), stored, found)]
    connection.executemany(
        "UPDATE outboxes SET base = offset, base_lines = lines WHERE name = ? AND (trial_id, attempt) ="
        " (SELECT trial_id, number FROM attempts WHERE job_name = ?)",
        [(name, job_name) for name in fresh],
    )


def _has_less(file: str, stored: Mapping[str, int], found: Mapping[str, int]) -> bool:
    return found.get(file, 0) < stored[newest_name(file, stored)]


def set_exit(connection: sqlite3.Connection, job_name: str, runner_exit: str, now_ms: int) -> None:
    """Stores the first exit report. `runner_exit`: JSON as the runner sent it, times by its clock."""
    row = connection.execute(
        "SELECT intended_ms, json_extract(containers, '$[#-1]') FROM attempts"
        " WHERE job_name = ? AND closed = 0 AND runner_exit IS NULL",
        (job_name,),
    ).fetchone()
    container = json.loads(runner_exit).get("container")
    if row is not None and (not container or row[1] in (None, container)):
        connection.execute(
            "UPDATE attempts SET runner_exit = ?, runner_exit_ms = ? WHERE job_name = ?",
            (with_possible_times(runner_exit, row[0], now_ms), now_ms, job_name),
        )


def missing(connection: sqlite3.Connection, job_name: str, outboxes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Outbox → (bytes stored, bytes written), if fewer are stored than the runner reports."""
    stored = jobs.offsets(connection, job_name)
    return {name: (stored.get(name, 0), size) for name, size in outboxes.items() if stored.get(name, 0) < size}
