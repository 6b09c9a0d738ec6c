"""Attempts and their jobs as rows: intent before the call, handle after it, evidence when it comes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from nni_manager.domain.job import JobHandle, JobReport, JobState

#: State of an attempt that was decided on and perhaps submitted: submit it (again) under its name.
INTENT = "INTENT"

#: Why another attempt follows an ended one.
PLATFORM = "PLATFORM"
USER_CODE = "USER_CODE"


class AttemptRow(NamedTuple):
    """An attempt as the scheduler sees it; its fields bear the names of the columns."""

    job_name: str
    #: ``INTENT`` or a JobState.
    state: str
    #: JSON of the platform's handle; None until the platform has answered.
    handle: str | None
    exit_code: int | None
    signal: int | None
    reason: str
    message: str
    stderr_tail: str
    started_ms: int | None
    ended_ms: int | None
    #: keeper, push or pull; empty: not known (yet).
    channel: str = ""
    #: JSON of the runner's word about the end, and when it was stored.
    runner_exit: str | None = None
    runner_exit_ms: int | None = None
    #: When the platform's end of it was stored.
    final_seen_ms: int | None = None
    #: Why some of its results may be missing; empty: none are, as far as the store knows.
    doubt: str = ""


ATTEMPT_COLUMNS = AttemptRow._fields


def intend(connection: sqlite3.Connection, *, trial_id: str, number: int, job_name: str, now_ms: int) -> None:
    """Writes down that this attempt will be submitted; comes before the call."""
    connection.execute(
        "INSERT INTO attempts (trial_id, number, job_name, state, intended_ms) VALUES (?, ?, ?, ?, ?)",
        (trial_id, number, job_name, INTENT, now_ms),
    )


def set_handle(connection: sqlite3.Connection, handle: JobHandle) -> None:
    """The platform accepted the job."""
    text = json.dumps({"platform": handle.platform, "version": handle.version, "data": handle.data})
    connection.execute(
        "UPDATE attempts SET handle = ?, state = CASE WHEN state = 'INTENT' THEN 'PENDING' ELSE state END"
        " WHERE job_name = ? AND closed = 0",
        (text, handle.job_name),
    )


def parse_handle(job_name: str, text: str) -> JobHandle:
    """A handle as `set_handle` stored it."""
    entry = json.loads(text)
    return JobHandle(platform=entry["platform"], version=entry["version"], job_name=job_name, data=entry["data"])


def set_report(connection: sqlite3.Connection, job_name: str, report: JobReport, now_ms: int) -> None:
    """Stores evidence. What is final stays, a job that ran is not PENDING again, UNKNOWN says nothing.

    Of a closed attempt only the end is stored, where the runner's word decided before the platform spoke.
    """
    if report.state is JobState.UNKNOWN:
        return
    connection.execute(
        "UPDATE attempts SET state = CASE WHEN state = 'RUNNING' AND ?1 = 'PENDING' THEN state ELSE ?1 END,"
        " exit_code = ?2, signal = ?3, reason = ?4, message = ?5, stderr_tail = ?6,"
        " started_ms = coalesce(?7, started_ms), ended_ms = ?8, final_seen_ms = CASE WHEN ?9 THEN ?10 END"
        " WHERE job_name = ?11 AND state IN ('INTENT', 'PENDING', 'RUNNING')"
        " AND (closed = 0 OR ?9 AND forgotten = 0 AND runner_exit IS NOT NULL)",
        (
            report.state, report.exit_code, report.signal, report.reason, report.message, report.stderr_tail,
            report.started_ms, report.ended_ms, report.state.is_final, now_ms, job_name,
        ),
    )  # fmt: skip


def take_back(connection: sqlite3.Connection, job_name: str) -> None:
    """The platform certainly did not take the job: the trial waits as if it had not been tried.

    Unless its runner says otherwise.
    """
    connection.execute(
        "DELETE FROM attempts WHERE job_name = ? AND state = 'INTENT' AND handle IS NULL AND closed = 0"
        " AND runner_exit IS NULL",
        (job_name,),
    )


def close(connection: sqlite3.Connection, trial_id: str, number: int, given_up: str = "") -> None:
    """Fences the attempt off. `given_up`: why another one follows."""
    connection.execute(
        "UPDATE attempts SET closed = 1, given_up = ?, forgotten = handle IS NULL WHERE trial_id = ? AND number = ?",
        (given_up, trial_id, number),
    )


def set_forgotten(connection: sqlite3.Connection, job_name: str) -> None:
    connection.execute("UPDATE attempts SET forgotten = 1 WHERE job_name = ?", (job_name,))


def unforgotten(connection: sqlite3.Connection) -> list[JobHandle]:
    """Closed attempts whose leftovers the platform still keeps."""
    rows = connection.execute(
        "SELECT job_name, handle FROM attempts WHERE forgotten = 0 AND closed = 1 AND handle IS NOT NULL"
    )
    return [parse_handle(*row) for row in rows]


def unconfirmed(connection: sqlite3.Connection) -> dict[str, str]:
    """Of the jobs in `unforgotten`, those decided before their platform said how they ended: name → runner's word."""
    rows = connection.execute(
        "SELECT job_name, runner_exit FROM attempts WHERE forgotten = 0 AND closed = 1 AND handle IS NOT NULL"
        " AND runner_exit IS NOT NULL AND final_seen_ms IS NULL"
    )
    return dict(rows.fetchall())


def undecided(connection: sqlite3.Connection) -> list[JobHandle]:
    """Jobs a platform accepted whose attempt is not closed."""
    rows = connection.execute(
        "SELECT job_name, handle FROM attempts WHERE forgotten = 0 AND closed = 0 AND handle IS NOT NULL"
    )
    return [parse_handle(*row) for row in rows]


def followed(connection: sqlite3.Connection, also: Iterable[str] = ()) -> dict[str, dict[str, int]]:
    """Names of the undecided jobs and those in `also` → how many bytes of each of their outboxes are stored."""
    names = dict.fromkeys([*(handle.job_name for handle in undecided(connection)), *also])
    return {name: offsets(connection, name) for name in names}


def retries(connection: sqlite3.Connection, trial_id: str) -> tuple[int, int]:
    """How many attempts of a trial were given up because of (its platform, its own code)."""
    platform, user = connection.execute(
        "SELECT coalesce(sum(given_up = 'PLATFORM'), 0), coalesce(sum(given_up = 'USER_CODE'), 0)"
        " FROM attempts WHERE trial_id = ?",
        (trial_id,),
    ).fetchone()
    return platform, user


def offsets(connection: sqlite3.Connection, job_name: str) -> dict[str, int]:
    """Bytes stored so far of each outbox of a job, of the files that its newest container writes."""
    rows = connection.execute(
        "SELECT o.name, o.offset - o.base FROM outboxes o"
        " JOIN attempts a ON a.trial_id = o.trial_id AND a.number = o.attempt WHERE a.job_name = ?",
        (job_name,),
    )
    return dict(rows.fetchall())
