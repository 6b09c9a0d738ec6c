"""Attempts and their jobs as rows: intent before the call, handle after it, evidence when it comes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from nni_manager.domain.attempt import MAY_STILL_RUN, PLATFORM, USER_CODE, Attempt, Observation
from nni_manager.domain.job import JobHandle, JobState

#: What a trial says of its job in the end when that could not be asked to end before.
_ENDED_LATER = "its job was ended later, when the service could be reached again"
#: Of an attempt: it was fenced off while its job ran, and nobody saw that end; and what it says when the job was ended.
_NOT_SEEN_TO_END = "(closed = 1 AND runner_exit IS NULL AND state IN ('INTENT', 'PENDING', 'RUNNING'))"
_ENDED_UNSEEN = "ended by the manager, as nothing was expected of it any more"

ATTEMPT_COLUMNS = Attempt._fields


def intend(connection: sqlite3.Connection, attempt: Attempt) -> None:
    """Writes down that this attempt will be submitted; comes before the call."""
    connection.execute(
        "INSERT INTO attempts (trial_id, number, job_name, state, service, intended_ms) VALUES (?, ?, ?, ?, ?, ?)",
        (attempt.trial_id, attempt.number, attempt.job_name, attempt.state, attempt.service, attempt.intended_ms),
    )


def set_handle(connection: sqlite3.Connection, handle: JobHandle) -> None:
    """The platform accepted the job."""
    connection.execute(
        "UPDATE attempts SET handle = ?, state = CASE WHEN state = 'INTENT' THEN 'PENDING' ELSE state END"
        " WHERE job_name = ? AND closed = 0",
        (handle.text, handle.job_name),
    )
    if handle.link:
        connection.execute("UPDATE attempts SET link = ? WHERE job_name = ?", (handle.link, handle.job_name))


#: Of a job that can be asked about again: when it could not is kept, as far as that is not too often.
BACK_AGAIN = """
    interruptions = CASE WHEN unreachable_ms IS NULL OR json_array_length(interruptions) >= 100 THEN interruptions
        ELSE json_insert(interruptions, '$[#]',
            json_object('sinceMs', unreachable_ms, 'untilMs', ?10, 'sentence', unreachable)) END,
    unreachable_ms = NULL, unreachable = ''
"""


def set_report(connection: sqlite3.Connection, job_name: str, report: Observation, now_ms: int) -> bool:
    """Stores evidence. What is final stays, a job that ran is not PENDING again, UNKNOWN says nothing but whether the
    job is unreachable.

    Of a closed attempt only the end is stored, where the runner's word decided before the platform spoke. Answers
    whether link, place or unreachability are others now.
    """
    query = "SELECT link, place, unreachable FROM attempts WHERE job_name = ?"
    before = connection.execute(query, (job_name,)).fetchone()
    if report.state is JobState.UNKNOWN:
        _set_reach(connection, job_name, report, now_ms)
    elif not _set_seen(connection, job_name, report, now_ms):
        _hear_again(connection, job_name, report, now_ms)
    return bool(before != connection.execute(query, (job_name,)).fetchone())


def _set_seen(connection: sqlite3.Connection, job_name: str, report: Observation, now_ms: int) -> bool:
    """Answers whether the report was taken."""
    wait = report.wait
    cursor = connection.execute(
        "UPDATE attempts SET state = CASE WHEN state = 'RUNNING' AND ?1 = 'PENDING' THEN state ELSE ?1 END,"
        " exit_code = ?2, signal = ?3, native_reason = ?4, cause = ?17, message = ?5, stderr_tail = ?6,"
        " started_ms = coalesce(max(?7, intended_ms), started_ms),"
        " ended_ms = max(?8, coalesce(max(?7, intended_ms), started_ms, ?8)),"
        " final_seen_ms = CASE WHEN ?9 THEN ?10 END,"
        f" {BACK_AGAIN}, wait_code = ?12, wait_sentence = ?13, wait_details = ?14,"
        " link = CASE WHEN ?15 = '' THEN link ELSE ?15 END, place = CASE WHEN ?16 = '' THEN place ELSE ?16 END"
        " WHERE job_name = ?11 AND state IN ('INTENT', 'PENDING', 'RUNNING')"
        " AND (closed = 0 OR ?9 AND forgotten = 0 AND runner_exit IS NOT NULL)",
        (
            report.state,
            report.exit_code,
            report.signal,
            report.native_reason,
            report.message,
            report.stderr_tail,
            report.started_ms,
            report.ended_ms,
            report.state.is_final,
            now_ms,
            job_name,
            wait.code if wait else "",
            wait.sentence if wait else "",
            json.dumps(wait.details) if wait else "{}",
            report.link,
            report.place,
            report.cause or "",
        ),
    )
    return cursor.rowcount > 0


def _hear_again(connection: sqlite3.Connection, job_name: str, report: Observation, now_ms: int) -> None:
    """Stores the first report on a job that had been missed; `late` shows it."""
    connection.execute(
        "UPDATE attempts SET state = ?, exit_code = ?, signal = ?, native_reason = ?, cause = ?, message = ?,"
        " stderr_tail = ?, started_ms = coalesce(?, started_ms), ended_ms = ?, final_seen_ms = ?"
        f" WHERE job_name = ? AND final_seen_ms IS NULL AND {MISSED}",
        (
            report.state,
            report.exit_code,
            report.signal,
            report.native_reason,
            report.cause or "",
            report.message,
            report.stderr_tail,
            report.started_ms,
            report.ended_ms,
            now_ms if report.state.is_final else None,
            job_name,
        ),
    )


def _set_reach(connection: sqlite3.Connection, job_name: str, report: Observation, now_ms: int) -> None:
    """Stores since when a job is unreachable: from the first report of it to the last; a daemon that starts anew goes
    on counting."""
    gone = "unreachable_ms = coalesce(unreachable_ms, ?10), unreachable = ?1"
    connection.execute(
        f"UPDATE attempts SET {gone if report.unreachable else BACK_AGAIN}"
        " WHERE job_name = ?11 AND closed = 0 AND state IN ('INTENT', 'PENDING', 'RUNNING')",
        (report.unreachable, *[None] * 8, now_ms, job_name),
    )


#: Of an attempt: it has reported something, so that its job has run, whatever its platform knows.
_HAS_REPORTED = (
    "(runner_exit IS NOT NULL OR EXISTS (SELECT 1 FROM outboxes o WHERE o.trial_id = attempts.trial_id"
    " AND o.attempt = attempts.number AND o.offset > 0))"
)


def take_back(connection: sqlite3.Connection, job_name: str, *, was_accepted: bool = False) -> bool:
    """The platform certainly did not take the job, or (`was_accepted`) did and certainly never ran it: the trial waits
    as if it had not been tried.

    Answers whether that is so; not of a job that has reported something.
    """
    cursor = connection.execute(
        f"DELETE FROM attempts WHERE job_name = ?1 AND closed = 0 AND NOT {_HAS_REPORTED}"
        " AND (state = 'INTENT' AND handle IS NULL OR ?2 AND state IN ('INTENT', 'PENDING'))",
        (job_name, was_accepted),
    )
    return cursor.rowcount > 0


def is_submitted_anew(connection: sqlite3.Connection, job_name: str, about: JobHandle | None) -> bool:
    """Whether a job has another submission by now than that which something was told of."""
    row = connection.execute("SELECT handle FROM attempts WHERE job_name = ?", (job_name,)).fetchone()
    return about is not None and (row is None or row[0] != about.text)


def submit_again(connection: sqlite3.Connection, job_name: str) -> bool:
    """The platform certainly never had the job, whose submission broke off: it is an intent again, on nobody's account.

    Answers whether that is so; not of a job that was seen to run or has reported something, whose results would be
    taken for those that are stored, nor of a trial that is asked to end.
    """
    cursor = connection.execute(
        "UPDATE attempts SET state = 'INTENT', handle = NULL, unreachable_ms = NULL, unreachable = ''"
        f" WHERE job_name = ? AND state IN ('INTENT', 'PENDING') AND closed = 0 AND NOT {_HAS_REPORTED}"
        " AND trial_id IN (SELECT id FROM trials WHERE asked = '')",
        (job_name,),
    )
    return cursor.rowcount > 0


def close(
    connection: sqlite3.Connection, trial_id: str, number: int, given_up: str = "", *, may_run: bool = False
) -> None:
    """Fences the attempt off. `given_up`: why another one follows; `may_run`: its job may, without a handle."""
    connection.execute(
        "UPDATE attempts SET closed = 1, given_up = ?, forgotten = handle IS NULL AND NOT ?"
        " WHERE trial_id = ? AND number = ?",
        (given_up, may_run, trial_id, number),
    )


def lose(connection: sqlite3.Connection, trial_id: str, number: int, message: str, ended_ms: int) -> None:
    """Nobody could ask about its job for too long."""
    connection.execute(
        "UPDATE attempts SET state = ?, message = ?, ended_ms = ? WHERE trial_id = ? AND number = ?",
        (JobState.LOST, message, ended_ms, trial_id, number),
    )


#: Of an attempt: it was given up because its job could not be asked about, and its trial goes on. What is heard of the
#: job again may still count.
MISSED = (
    f"closed = 1 AND forgotten = 0 AND given_up = '{PLATFORM}' AND unreachable_ms IS NOT NULL AND handle IS NOT NULL"
    " AND trial_id IN (SELECT id FROM trials WHERE status IN ('WAITING', 'RUNNING', 'UNKNOWN'))"
)


def open_handle(connection: sqlite3.Connection, trial_id: str, number: int) -> tuple[str, JobHandle] | None:
    """(service, handle) of an attempt whose job the service still keeps; None: it has none, or nothing of it."""
    row = connection.execute(
        "SELECT service, job_name, handle FROM attempts WHERE trial_id = ? AND number = ? AND forgotten = 0"
        " AND handle IS NOT NULL",
        (trial_id, number),
    ).fetchone()
    return row and (row[0], JobHandle.parse(row[1], row[2]))


def set_forgotten(connection: sqlite3.Connection, job_name: str) -> None:
    """Notes that no trace of the job is left on its training service: what was not seen to end was ended, and its trial
    says no more that it may run."""
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
    """Closed attempts of which the training service still keeps something, and of which nothing is expected."""
    rows = connection.execute(
        "SELECT job_name, handle FROM attempts WHERE forgotten = 0 AND closed = 1 AND handle IS NOT NULL"
        f" AND service = ? AND NOT ({MISSED})",
        (service,),
    )
    return [JobHandle.parse(*row) for row in rows]


#: Of an attempt: its job may still run.
_MAY_RUN = "forgotten = 0 AND runner_exit IS NULL AND state IN ('INTENT', 'PENDING', 'RUNNING')"


def unaccounted(connection: sqlite3.Connection, service: str) -> list[str]:
    """Names of jobs whose attempt is closed and that may still run, or of which nobody knows whether they ever did."""
    rows = connection.execute(
        f"SELECT job_name FROM attempts WHERE closed = 1 AND service = ? AND {_MAY_RUN}", (service,)
    )
    return [name for (name,) in rows]


def left_of(connection: sqlite3.Connection, trial_id: str) -> str | None:
    """The service on which a job of the trial may still run although its attempt is closed; None: none does."""
    row = connection.execute(
        f"SELECT service FROM attempts WHERE trial_id = ? AND closed = 1 AND {_MAY_RUN}", (trial_id,)
    ).fetchone()
    return None if row is None else row[0]


def has_any(connection: sqlite3.Connection, service: str) -> bool:
    """Whether an attempt of the service is open, or it still keeps something of one."""
    query = (
        "SELECT 1 FROM attempts WHERE service = ? AND (closed = 0 OR forgotten = 0 AND (handle IS NOT NULL"
        f" OR {_MAY_RUN})) LIMIT 1"
    )
    return connection.execute(query, (service,)).fetchone() is not None


#: Of an attempt: it counts as lost since nobody could ask about its job, and nothing was heard of that since.
_LOST_SIGHT_OF = "forgotten = 0 AND state = 'LOST' AND unreachable_ms IS NOT NULL AND final_seen_ms IS NULL"


def left(connection: sqlite3.Connection, *, running: bool, decided: bool = False) -> dict[str, tuple[str, ...]]:
    """Service → names of jobs of which it may keep something; `running`: of those that may still run; `decided`: of
    those that no trial waits for any more."""
    found: dict[str, list[str]] = {}
    which = (f"({_MAY_RUN} OR {_LOST_SIGHT_OF})" if running else "forgotten = 0") + (
        " AND closed = 1" if decided else ""
    )
    query = f"SELECT service, job_name FROM attempts WHERE {which} ORDER BY trial_id, number"
    for service, name in connection.execute(query):
        found.setdefault(service, []).append(name)
    return {service: tuple(names) for service, names in found.items()}


def why_unreachable(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Service → why it could not be asked about jobs of which it may keep something."""
    found: dict[str, list[str]] = {}
    query = "SELECT DISTINCT service, unreachable FROM attempts WHERE forgotten = 0 AND unreachable != '' ORDER BY 1, 2"
    for service, sentence in connection.execute(query):
        found.setdefault(service, []).append(sentence)
    return {service: tuple(sentences) for service, sentences in found.items()}


def services_used(connection: sqlite3.Connection) -> list[str]:
    """Names of training services that something was submitted to."""
    rows = connection.execute("SELECT DISTINCT service FROM attempts ORDER BY 1")
    return [name for (name,) in rows if name]


def unconfirmed(connection: sqlite3.Connection) -> dict[str, str]:
    """The jobs in `unforgotten` that were decided before their platform said how they ended: name → runner's word."""
    rows = connection.execute(
        "SELECT job_name, runner_exit FROM attempts WHERE forgotten = 0 AND closed = 1 AND handle IS NOT NULL"
        " AND runner_exit IS NOT NULL AND final_seen_ms IS NULL"
    )
    return dict(rows.fetchall())


def undecided(connection: sqlite3.Connection, service: str) -> list[JobHandle]:
    """Jobs a training service accepted whose attempt is not closed, or was missed."""
    rows = connection.execute(
        "SELECT job_name, handle FROM attempts WHERE forgotten = 0 AND handle IS NOT NULL AND service = ?"
        f" AND (closed = 0 OR {MISSED})",
        (service,),
    )
    return [JobHandle.parse(*row) for row in rows]


def has_undecided(connection: sqlite3.Connection) -> bool:
    """Whether any service accepted a job whose attempt is not closed; also of an earlier schema."""
    query = "SELECT 1 FROM attempts WHERE forgotten = 0 AND closed = 0 AND handle IS NOT NULL LIMIT 1"
    return connection.execute(query).fetchone() is not None


def followed(connection: sqlite3.Connection, service: str, also: Iterable[str] = ()) -> dict[str, dict[str, int]]:
    """Names of the service's undecided jobs and those in `also` → bytes stored of each of their outboxes."""
    names = dict.fromkeys([*(handle.job_name for handle in undecided(connection, service)), *also])
    return {name: offsets(connection, name) for name in names}


def retries(connection: sqlite3.Connection, trial_id: str) -> tuple[int, int]:
    """How many attempts of a trial were given up because of (its platform, its own code)."""
    platform, user = connection.execute(
        f"SELECT coalesce(sum(given_up = '{PLATFORM}'), 0), coalesce(sum(given_up = '{USER_CODE}'), 0)"
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
