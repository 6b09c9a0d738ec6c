"""Attempts and their jobs as rows: the intent before the submission, the handle after it, and how they are closed.

A missed attempt was given up because its job was unreachable, while the trial is open. It may be revived.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable

from nni_manager.domain.attempt import MAY_STILL_RUN, PLATFORM, USER_CODE, Attempt
from nni_manager.domain.job import JobHandle, JobState

#: Message of a trial after its job was cancelled late, when the service was reachable again.
_ENDED_LATER = "its job was ended later, when the service could be reached again"
#: Whether an attempt was closed while its job ran and the end was not observed; and the message once it was ended.
_NOT_SEEN_TO_END = "(closed = 1 AND runner_exit IS NULL AND state IN ('INTENT', 'PENDING', 'RUNNING'))"
_ENDED_UNSEEN = "ended by the manager, as nothing was expected of it any more"

ATTEMPT_COLUMNS = Attempt._fields


def intend(connection: sqlite3.Connection, attempt: Attempt) -> None:
    """Stores the intent to submit this attempt, before the submission."""
    connection.execute(
        "INSERT INTO attempts (trial_id, number, job_name, state, service, intended_ms) VALUES (?, ?, ?, ?, ?, ?)",
        (attempt.trial_id, attempt.number, attempt.job_name, attempt.state, attempt.service, attempt.intended_ms),
    )


def set_handle(connection: sqlite3.Connection, handle: JobHandle) -> None:
    """Notes that the platform accepted the job."""
    connection.execute(
        "UPDATE attempts SET handle = ?, state = CASE WHEN state = 'INTENT' THEN 'PENDING' ELSE state END"
        " WHERE job_name = ? AND closed = 0",
        (handle.text, handle.job_name),
    )
    if handle.link:
        connection.execute("UPDATE attempts SET link = ? WHERE job_name = ?", (handle.link, handle.job_name))


#: Ends the unreachable time of a job at `:now_ms`; it is stored as an interruption, up to 100 of them.
BACK_AGAIN = """
    interruptions = CASE WHEN unreachable_ms IS NULL OR json_array_length(interruptions) >= 100 THEN interruptions
        ELSE json_insert(interruptions, '$[#]',
            json_object('sinceMs', unreachable_ms, 'untilMs', :now_ms, 'sentence', unreachable)) END,
    unreachable_ms = NULL, unreachable = ''
"""


#: Whether an attempt has reported anything, which proves that its job ran.
_HAS_REPORTED = (
    "(runner_exit IS NOT NULL OR EXISTS (SELECT 1 FROM outboxes o WHERE o.trial_id = attempts.trial_id"
    " AND o.attempt = attempts.number AND o.offset > 0))"
)


def withdraw(connection: sqlite3.Connection, job_name: str, *, was_accepted: bool = False) -> bool:
    """Deletes an attempt that the platform certainly rejected, or (`was_accepted`) accepted and never ran: its trial
    waits as before the attempt.

    Returns whether it was deleted; an attempt that has reported anything stays.
    """
    cursor = connection.execute(
        f"DELETE FROM attempts WHERE job_name = ? AND closed = 0 AND NOT {_HAS_REPORTED}"
        " AND (state = 'INTENT' AND handle IS NULL OR ? AND state IN ('INTENT', 'PENDING'))",
        (job_name, was_accepted),
    )
    return cursor.rowcount > 0


def is_submitted_anew(connection: sqlite3.Connection, job_name: str, about: JobHandle | None) -> bool:
    """Whether the job was submitted again after the submission `about`."""
    if about is None:
        return False
    row = connection.execute("SELECT handle FROM attempts WHERE job_name = ?", (job_name,)).fetchone()
    return row is None or row[0] != about.text


def return_to_intent(connection: sqlite3.Connection, job_name: str) -> bool:
    """Makes an attempt an intent again after an interrupted submission that never reached the platform; costs no retry.

    Returns whether it did: not for a job that ran or reported, as its new results would mix with the stored ones, and
    not for a trial with a stop request.
    """
    cursor = connection.execute(
        "UPDATE attempts SET state = 'INTENT', handle = NULL, unreachable_ms = NULL, unreachable = '',"
        " hopeless_ms = NULL"
        f" WHERE job_name = ? AND state IN ('INTENT', 'PENDING') AND closed = 0 AND NOT {_HAS_REPORTED}"
        " AND EXISTS (SELECT 1 FROM trials t WHERE t.id = attempts.trial_id AND t.asked = '')",
        (job_name,),
    )
    return cursor.rowcount > 0


def close(
    connection: sqlite3.Connection, trial_id: str, number: int, given_up: str = "", *, may_run: bool = False
) -> None:
    """Closes the attempt. `given_up`: why another follows; `may_run`: its job may run although it has no handle."""
    connection.execute(
        "UPDATE attempts SET closed = 1, given_up = ?, forgotten = handle IS NULL AND NOT ?"
        " WHERE trial_id = ? AND number = ?",
        (given_up, may_run, trial_id, number),
    )


def mark_lost(connection: sqlite3.Connection, trial_id: str, number: int, message: str, ended_ms: int) -> None:
    """Marks the job LOST, as it could not be observed for too long."""
    connection.execute(
        "UPDATE attempts SET state = ?, message = ?, ended_ms = ? WHERE trial_id = ? AND number = ?",
        (JobState.LOST, message, ended_ms, trial_id, number),
    )


#: Whether an attempt is missed: given up because its job was unreachable, while its trial is open. Its results may
#: still count.
MISSED = (
    f"closed = 1 AND forgotten = 0 AND given_up = '{PLATFORM}' AND unreachable_ms IS NOT NULL AND handle IS NOT NULL"
    " AND EXISTS (SELECT 1 FROM trials t WHERE t.id = attempts.trial_id"
    " AND t.status IN ('WAITING', 'RUNNING', 'UNKNOWN'))"
)


def handle(
    connection: sqlite3.Connection, trial_id: str, number: int, *, forgotten: bool = True
) -> tuple[str, JobHandle] | None:
    """(service, handle) of an attempt; None: it has no handle. `forgotten`: False leaves out those that the service has
    forgotten."""
    row = connection.execute(
        "SELECT service, job_name, handle FROM attempts WHERE trial_id = ? AND number = ? AND handle IS NOT NULL"
        " AND forgotten <= ?",
        (trial_id, number, forgotten),
    ).fetchone()
    return row and (row[0], JobHandle.parse(row[1], row[2]))


def set_forgotten(connection: sqlite3.Connection, job_name: str) -> None:
    """Marks the job as forgotten by its training service. An unobserved end becomes CANCELLED, and its trial's message
    no longer says that the job may run."""
    connection.execute(
        "UPDATE attempts SET forgotten = 1,"
        f" message = CASE WHEN {_NOT_SEEN_TO_END} THEN '{_ENDED_UNSEEN}' ELSE message END,"
        f" state = CASE WHEN {_NOT_SEEN_TO_END} THEN 'CANCELLED' ELSE state END WHERE job_name = ?",
        (job_name,),
    )
    connection.execute(
        "UPDATE trials SET message = ? WHERE id = (SELECT trial_id FROM attempts WHERE job_name = ?)"
        f" AND message LIKE '{MAY_STILL_RUN}%'",
        (_ENDED_LATER, job_name),
    )


def unforgotten(connection: sqlite3.Connection, service: str) -> list[JobHandle]:
    """Closed, not missed attempts that the training service has not forgotten."""
    rows = connection.execute(
        "SELECT job_name, handle FROM attempts WHERE forgotten = 0 AND closed = 1 AND handle IS NOT NULL"
        f" AND service = ? AND NOT ({MISSED})",
        (service,),
    )
    return [JobHandle.parse(*row) for row in rows]


#: Whether the job of an attempt may still run.
_MAY_RUN = "forgotten = 0 AND runner_exit IS NULL AND state IN ('INTENT', 'PENDING', 'RUNNING')"


def unconfirmed_jobs(connection: sqlite3.Connection, service: str) -> list[str]:
    """Names of jobs of closed attempts that may still run, or may have been submitted."""
    rows = connection.execute(
        f"SELECT job_name FROM attempts WHERE closed = 1 AND service = ? AND {_MAY_RUN}", (service,)
    )
    return [name for (name,) in rows]


def leftover_service(connection: sqlite3.Connection, trial_id: str) -> str | None:
    """The service on which a closed attempt's job of the trial may still run; None: no such job."""
    row = connection.execute(
        f"SELECT service FROM attempts WHERE trial_id = ? AND closed = 1 AND {_MAY_RUN}", (trial_id,)
    ).fetchone()
    return None if row is None else row[0]


def running(connection: sqlite3.Connection, services: Collection[str]) -> list[tuple[str, int]]:
    """Trial and number of the attempts that these training services have, of open trials."""
    marks = ", ".join("?" * len(services))
    query = (
        "SELECT a.trial_id, a.number FROM trials t JOIN attempts a ON a.trial_id = t.id AND a.number = t.attempt"
        f" WHERE t.status IN ('RUNNING', 'UNKNOWN') AND a.service IN ({marks})"
    )
    return connection.execute(query, [*services]).fetchall()


def has_any(connection: sqlite3.Connection, service: str) -> bool:
    """Whether the service has an open attempt, or one that it has not forgotten."""
    query = (
        "SELECT 1 FROM attempts WHERE service = ? AND (closed = 0 OR forgotten = 0 AND (handle IS NOT NULL"
        f" OR {_MAY_RUN})) LIMIT 1"
    )
    return connection.execute(query, (service,)).fetchone() is not None


#: Whether an attempt is LOST because its job was unreachable, without an observation since.
_LOST_SIGHT_OF = "forgotten = 0 AND state = 'LOST' AND unreachable_ms IS NOT NULL AND final_seen_ms IS NULL"


def left(connection: sqlite3.Connection, *, running: bool, decided: bool = False) -> dict[str, tuple[str, ...]]:
    """Service → names of jobs that it has not forgotten; `running`: only those that may still run; `decided`: only
    those of closed attempts."""
    which = f"({_MAY_RUN} OR {_LOST_SIGHT_OF})" if running else "forgotten = 0"
    which += " AND closed = 1" if decided else ""
    return _by_service(connection, f"SELECT service, job_name FROM attempts WHERE {which} ORDER BY trial_id, number")


def why_unreachable(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Service → sentences why its jobs that are not forgotten were unreachable."""
    query = "SELECT DISTINCT service, unreachable FROM attempts WHERE forgotten = 0 AND unreachable != '' ORDER BY 1, 2"
    return _by_service(connection, query)


def _by_service(connection: sqlite3.Connection, query: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for service, text in connection.execute(query):
        found.setdefault(service, []).append(text)
    return {service: tuple(texts) for service, texts in found.items()}


def services_used(connection: sqlite3.Connection) -> list[str]:
    """Names of the training services that have attempts."""
    rows = connection.execute("SELECT DISTINCT service FROM attempts ORDER BY 1")
    return [name for (name,) in rows if name]


def unconfirmed(connection: sqlite3.Connection) -> dict[str, str]:
    """Job name → runner exit, of those in `unforgotten` without an end reported by the platform."""
    rows = connection.execute(
        "SELECT job_name, runner_exit FROM attempts WHERE forgotten = 0 AND closed = 1 AND handle IS NOT NULL"
        " AND runner_exit IS NOT NULL AND final_seen_ms IS NULL"
    )
    return dict(rows.fetchall())


#: Whether an attempt, open or missed, has an accepted job; the parameter is the service.
_UNDECIDED = f"forgotten = 0 AND handle IS NOT NULL AND service = ? AND (closed = 0 OR {MISSED})"


def undecided(connection: sqlite3.Connection, service: str) -> list[JobHandle]:
    """Accepted jobs of a training service, of open and missed attempts."""
    rows = connection.execute(f"SELECT job_name, handle FROM attempts WHERE {_UNDECIDED}", (service,))
    return [JobHandle.parse(*row) for row in rows]


def has_undecided(connection: sqlite3.Connection) -> bool:
    """Whether an open attempt has an accepted job."""
    query = "SELECT 1 FROM attempts WHERE forgotten = 0 AND closed = 0 AND handle IS NOT NULL LIMIT 1"
    return connection.execute(query).fetchone() is not None


def has_undecided_elsewhere(connection: sqlite3.Connection) -> bool:
    """Whether an open attempt has a job that may have been accepted, on a service other than this machine."""
    query = "SELECT 1 FROM attempts WHERE forgotten = 0 AND closed = 0 AND service <> 'local' LIMIT 1"
    return connection.execute(query).fetchone() is not None


def followed(connection: sqlite3.Connection, service: str, also: Iterable[str] = ()) -> dict[str, dict[str, int]]:
    """Job name → bytes stored per outbox, for the service's undecided jobs and those in `also`."""
    rows = connection.execute(
        "SELECT a.job_name, o.name, o.offset - o.base"
        f" FROM (SELECT trial_id, number, job_name FROM attempts WHERE {_UNDECIDED}) a"
        " LEFT JOIN outboxes o ON o.trial_id = a.trial_id AND o.attempt = a.number",
        (service,),
    )
    found: dict[str, dict[str, int]] = {}
    for job_name, outbox, offset in rows:
        of_job = found.setdefault(job_name, {})
        if outbox is not None:
            of_job[outbox] = offset
    return found | {name: offsets(connection, name) for name in also if name not in found}


def retries(connection: sqlite3.Connection, trial_id: str) -> tuple[int, int]:
    """(attempts given up because of the platform, attempts given up because of the trial's code)."""
    platform, user = connection.execute(
        f"SELECT coalesce(sum(given_up = '{PLATFORM}'), 0), coalesce(sum(given_up = '{USER_CODE}'), 0)"
        " FROM attempts WHERE trial_id = ?",
        (trial_id,),
    ).fetchone()
    return platform, user


def offsets(connection: sqlite3.Connection, job_name: str) -> dict[str, int]:
    """Outbox → bytes stored, of the files that the job's newest container writes."""
    rows = connection.execute(
        "SELECT o.name, o.offset - o.base FROM outboxes o"
        " JOIN attempts a ON a.trial_id = o.trial_id AND a.number = o.attempt WHERE a.job_name = ?",
        (job_name,),
    )
    return dict(rows.fetchall())


def missed(connection: sqlite3.Connection) -> list[Attempt]:
    """Missed attempts, highest number first."""
    query = f"SELECT {', '.join(ATTEMPT_COLUMNS)} FROM attempts WHERE {MISSED} ORDER BY number DESC"
    return [Attempt._make(row) for row in connection.execute(query)]


def missed_attempt(connection: sqlite3.Connection, job_name: str) -> tuple[str, int] | None:
    """(trial, number) of a missed job; None: it is not missed."""
    query = f"SELECT trial_id, number FROM attempts WHERE job_name = ? AND {MISSED}"
    row: tuple[str, int] | None = connection.execute(query, (job_name,)).fetchone()
    return row


def revive(connection: sqlite3.Connection, trial_id: str, number: int, now_ms: int) -> None:
    """Reopens a missed attempt as its trial's current one."""
    connection.execute(
        f"UPDATE attempts SET closed = 0, given_up = '', {BACK_AGAIN} WHERE trial_id = :trial_id AND number = :number",
        {"now_ms": now_ms, "trial_id": trial_id, "number": number},
    )


def drop_missed(connection: sqlite3.Connection, trial_id: str, number: int) -> None:
    """Ends the wait for a missed attempt."""
    connection.execute(
        "UPDATE attempts SET unreachable_ms = NULL WHERE trial_id = ? AND number = ?", (trial_id, number)
    )
