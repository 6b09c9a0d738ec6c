"""Trials as rows, and the checkpoints of succeeded trials: noted until they are removed, if not all are kept.

Only the scheduler calls the functions that change them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from nni_manager.domain.attempt import Attempt
from nni_manager.domain.experiment import NeedlessCheckpoint
from nni_manager.domain.ids import new_trial_ids
from nni_manager.domain.job import JobHandle
from nni_manager.domain.reason import Reason
from nni_manager.domain.results.final_result import ReportedResult
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.domain.text import spelled
from nni_manager.domain.trial import OpenTrial, StopRequest
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store.experiment.jobs import ATTEMPT_COLUMNS

#: `source`: the table of trials as `t`, or a join that has them.
_OPEN = f"""
SELECT t.id, t.sequence_id, t.status, t.record, t.created_ms, t.started_ms, t.attempt, t.asked, t.wait_code,
       t.wait_sentence, t.wait_details, t.wait_ms, t.final_data IS NOT NULL, t.further_finals,
       t.continues,
       {", ".join(f"a.{column}" for column in ATTEMPT_COLUMNS)}
FROM {{source}} LEFT JOIN attempts a ON a.trial_id = t.id AND a.number = t.attempt
WHERE t.status IN ('WAITING', 'RUNNING', 'UNKNOWN') ORDER BY t.sequence_id
"""


def load_open(connection: sqlite3.Connection, among: str = "") -> tuple[OpenTrial, ...]:
    """The trials that have not ended, oldest first. `among`: a table with the ids of those to load; empty: all."""
    source = f"{among} CROSS JOIN trials t ON t.id = {among}.id" if among else "trials t"
    return tuple(map(_open_trial, connection.execute(_OPEN.format(source=source))))


def _open_trial(row: tuple[Any, ...]) -> OpenTrial:
    id_, sequence_id, status, record, created, started, attempt, asked, *rest = row
    wait_code, wait_sentence, wait_details, wait_ms, has_final, further_finals, continues, *job = rest
    return OpenTrial(
        id=id_,
        sequence_id=sequence_id,
        status=TrialStatus(status),
        record=record,
        created_ms=created,
        started_ms=started,
        attempt=attempt,
        asked=StopRequest(asked) if asked else None,
        wait_code=wait_code,
        wait_sentence=wait_sentence,
        wait_details=wait_details,
        wait_ms=wait_ms,
        job=Attempt._make(job) if job[0] is not None else None,
        has_final=bool(has_final),
        further_finals=further_finals,
        continues=continues,
    )


def status(connection: sqlite3.Connection, id: str) -> TrialStatus | None:
    """The status of a trial; None: unknown trial."""
    row = connection.execute("SELECT status FROM trials WHERE id = ?", (id,)).fetchone()
    return None if row is None else TrialStatus(row[0])


def of_parameter_ids(connection: sqlite3.Connection, numbers: Collection[int]) -> dict[int, str]:
    """The trials that the tuner proposed under these numbers, by number."""
    marks = ", ".join("?" * len(numbers))
    rows = connection.execute(f"SELECT parameter_id, id FROM trials WHERE parameter_id IN ({marks})", [*numbers])
    return dict(rows.fetchall())


def fresh_ids(connection: sqlite3.Connection, count: int) -> tuple[str, ...]:
    """Ids that no trial of this experiment has."""
    found: list[str] = []
    ids = new_trial_ids()
    while len(found) < count:
        id_ = next(ids)
        taken = connection.execute("SELECT 1 FROM trials WHERE id = ?", (id_,)).fetchone()
        if taken is None and id_ not in found:
            found.append(id_)
    return tuple(found)


def add(
    connection: sqlite3.Connection,
    *,
    id: str,
    parameter_id: int | None,
    record: str,
    wait_code: WaitCode,
    wait_sentence: str,
    now_ms: int,
    repeats: str = "",
    continues: str = "",
) -> int:
    """Adds a WAITING trial; returns its sequence id. `record`: the parameter record that the trial reads, JSON;
    `repeats`: id of the trial that it repeats; `continues`: id of the trial whose checkpoint it begins with."""
    (sequence_id,) = connection.execute(
        "UPDATE experiment SET next_sequence_id = next_sequence_id + 1, next_parameter_id ="
        " max(next_parameter_id, coalesce(?, -1) + 1) RETURNING next_sequence_id - 1",
        (parameter_id,),
    ).fetchone()
    connection.execute(
        "INSERT INTO trials (id, sequence_id, status, parameter_id, record, created_ms, wait_code, wait_sentence,"
        " wait_ms, repeats, continues) VALUES (?, ?, 'WAITING', ?, ?, ?, ?, ?, ?, ?, ?)",
        (id, sequence_id, parameter_id, record, now_ms, wait_code, wait_sentence, now_ms, repeats, continues),
    )
    return int(sequence_id)


def set_waiting(connection: sqlite3.Connection, id: str, wait: Wait, now_ms: int) -> None:
    connection.execute(
        "UPDATE trials SET status = 'WAITING', wait_code = ?, wait_sentence = ?, wait_details = ?, wait_ms = ?"
        " WHERE id = ?",
        (wait.code, wait.sentence, json.dumps(wait.details), now_ms, id),
    )


def set_running(connection: sqlite3.Connection, id: str, started_ms: int) -> None:
    connection.execute(
        "UPDATE trials SET status = 'RUNNING', started_ms = ?, message = '', wait_code = '', wait_sentence = '',"
        " wait_details = '{}'"
        " WHERE id = ?",
        (started_ms, id),
    )


def set_unknown(connection: sqlite3.Connection, id: str, message: str) -> None:
    connection.execute("UPDATE trials SET status = 'UNKNOWN', message = ? WHERE id = ?", (message, id))


def request_stop_elsewhere(connection: sqlite3.Connection, services: Collection[str], by: StopRequest) -> None:
    """Requests the stop of all open trials with an attempt on a service that is not among these."""
    query = (
        "SELECT t.id, a.service FROM trials t JOIN attempts a ON a.trial_id = t.id AND a.number = t.attempt"
        " WHERE t.status IN ('WAITING', 'RUNNING', 'UNKNOWN') AND a.closed = 0"
    )
    for id_, service in connection.execute(query).fetchall():
        if service not in services:
            request_stop(connection, id_, by)


def request_stop(connection: sqlite3.Connection, id: str, by: StopRequest) -> bool:
    """Stores a stop request; the first one counts. Returns whether the trial was open."""
    cursor = connection.execute(
        "UPDATE trials SET asked = CASE WHEN asked = '' THEN ? ELSE asked END"
        " WHERE id = ? AND status IN ('WAITING', 'RUNNING', 'UNKNOWN')",
        (by, id),
    )
    return cursor.rowcount == 1


def finish(
    connection: sqlite3.Connection,
    id: str,
    *,
    status: TrialStatus,
    reason: Reason,
    message: str,
    ended_ms: int,
    started_ms: int | None = None,
    last_words: str = "",
    failure_key: str = "",
) -> None:
    """Ends the trial; only a resume after a stop reopens it.

    `started_ms`: its start, if the stored one is wrong; `last_words`: stderr line with the cause, if it failed;
    `failure_key`: see `domain.trial`.
    """
    (order,) = connection.execute(
        "UPDATE experiment SET ended_trials = ended_trials + 1 RETURNING ended_trials"
    ).fetchone()
    connection.execute(
        "UPDATE trials SET status = :status, reason = :reason, message = :message,"
        " started_ms = coalesce(:started_ms, started_ms),"
        " ended_ms = max(:ended_ms, coalesce(:started_ms, started_ms, created_ms)), wait_code = '', wait_sentence = '',"
        " wait_details = '{}', last_words = :last_words, failure_key = :failure_key, end_order = :order WHERE id = :id",
        {
            "status": status,
            "reason": reason,
            "message": message,
            "started_ms": started_ms,
            "ended_ms": ended_ms,
            "last_words": spelled(last_words),
            "failure_key": spelled(failure_key),
            "order": order,
            "id": id,
        },
    )


def next_attempt(connection: sqlite3.Connection, id: str, code: WaitCode, sentence: str) -> None:
    """Makes the trial wait for another attempt; results of the last one do not count."""
    connection.execute(
        "UPDATE trials SET status = 'WAITING', attempt = 1 + max(attempt,"
        " coalesce((SELECT max(number) FROM attempts WHERE trial_id = trials.id), 0)), asked = '', message = '',"
        " wait_code = ?, wait_sentence = ?, wait_details = '{}', started_ms = NULL, intermediates = 0,"
        " last_value = NULL, final_data = NULL, final_value = NULL, further_finals = 0 WHERE id = ?",
        (code, sentence, id),
    )


def revive_attempt(connection: sqlite3.Connection, id: str, number: int, sentence: str) -> None:
    """Makes a missed attempt the current one again, with its results."""
    of_attempt = "FROM metrics WHERE trial_id = trials.id AND attempt = :number AND type ="
    connection.execute(
        "UPDATE trials SET status = 'WAITING', attempt = :number, message = '', started_ms = NULL,"
        f" wait_code = :code, wait_sentence = :sentence, wait_details = '{{}}',"
        f" intermediates = (SELECT count(*) {of_attempt} 'PERIODICAL'),"
        f" last_value = (SELECT value {of_attempt} 'PERIODICAL' AND value IS NOT NULL ORDER BY sequence DESC LIMIT 1),"
        f" final_data = (SELECT data {of_attempt} 'FINAL' ORDER BY id LIMIT 1),"
        f" final_value = (SELECT value {of_attempt} 'FINAL' ORDER BY id LIMIT 1),"
        f" further_finals = max(0, (SELECT count(*) {of_attempt} 'FINAL') - 1) WHERE id = :id",
        {"number": number, "id": id, "code": WaitCode.SUBMITTED, "sentence": sentence},
    )


def reopen_stopped(connection: sqlite3.Connection) -> int:
    """On resume: trials that ended because the experiment was stopped wait again, with the same parameters.

    Returns their number. Trials that never had a job keep their attempt number. A trial that NNI ran has no row in
    `attempts`; its start or its results show that it had a job.
    """
    rows = connection.execute(
        "SELECT t.id, a.trial_id IS NOT NULL OR t.started_ms IS NOT NULL OR t.intermediates > 0"
        " OR t.final_data IS NOT NULL FROM trials t LEFT JOIN attempts a"
        " ON a.trial_id = t.id AND a.number = t.attempt WHERE t.status = 'USER_CANCELED' AND t.reason = ?",
        (Reason.EXPERIMENT_STOPPED,),
    ).fetchall()
    for id_, had_job in rows:
        connection.execute(
            "UPDATE trials SET reason = '', message = '', ended_ms = NULL, end_order = NULL, attempt = attempt - ?,"
            " record = json_set(record, '$.parameter_source', CASE WHEN parameter_id IS NULL"
            " THEN 'customized' ELSE 'resumed' END) WHERE id = ?",
            (not had_job, id_),
        )
        next_attempt(connection, id_, WaitCode.CONCURRENCY, "waits for a free slot since the experiment was resumed")
    return len(rows)


def first_ended(connection: sqlite3.Connection, count: int) -> list[tuple[str, str, str, str, str]]:
    """(id, status, reason, message, failure key) of the first `count` trials that ended."""
    query = "SELECT id, status, reason, message, failure_key FROM trials WHERE end_order <= ? ORDER BY end_order"
    return connection.execute(query, (count,)).fetchall()


def last_keys(connection: sqlite3.Connection, after: int, count: int) -> tuple[str, ...]:
    """Failure keys of the last `count` trials with an end order above `after`, in end order; '': not failed."""
    rows = connection.execute(
        "SELECT failure_key FROM trials WHERE end_order > ? ORDER BY end_order DESC LIMIT ?", (after, max(0, count))
    )
    return tuple(key for (key,) in rows)[::-1]


def failed_since(connection: sqlite3.Connection, after: int) -> int:
    """The number of failed trials with an end order above `after`."""
    query = "SELECT count(*) FROM trials WHERE failure_key <> '' AND end_order > ?"
    return int(connection.execute(query, (after,)).fetchone()[0])


def reported(connection: sqlite3.Connection, id: str) -> ReportedResult:
    """The results of a trial's current attempt."""
    query = "SELECT final_data, intermediates FROM trials WHERE id = ?"
    final, intermediates = connection.execute(query, (id,)).fetchone()
    return ReportedResult(final=final, intermediates=intermediates)


def last_reported(connection: sqlite3.Connection) -> ReportedResult | None:
    """The results of the succeeded trial that ended last; None: none has succeeded."""
    query = "SELECT id FROM trials WHERE status = 'SUCCEEDED' AND end_order IS NOT NULL ORDER BY end_order DESC LIMIT 1"
    row = connection.execute(query).fetchone()
    return None if row is None else reported(connection, row[0])


#: Maximum number per turn: each removal causes the next turn.
_AT_A_TIME = 64

#: If a platform has not forgotten a job, its processes may still write. A trial that begins with a checkpoint has
#: copied it before its own end.
_NEEDLESS = """
SELECT trial_id FROM checkpoints AS c
WHERE trial_id NOT IN (SELECT value FROM json_each(:at_work))
    AND NOT EXISTS (
        SELECT 1 FROM attempts WHERE trial_id = c.trial_id AND handle IS NOT NULL
            AND (forgotten = 0 OR service IN (SELECT value FROM json_each(:away))))
    AND NOT EXISTS (SELECT 1 FROM trials WHERE end_order IS NULL AND continues = c.trial_id)
    AND trial_id NOT IN (
        SELECT id FROM trials JOIN checkpoints ON trial_id = id
        WHERE status = 'SUCCEEDED' AND coalesce(abs(final_value) < 1.8e308, 0)
        ORDER BY final_value * :sign DESC, sequence_id LIMIT :kept)
LIMIT :most
"""


def note_checkpoint(connection: sqlite3.Connection, trial_id: str) -> None:
    """Notes that a trial succeeded and may have a checkpoint."""
    connection.execute("INSERT OR IGNORE INTO checkpoints (trial_id) VALUES (?)", (trial_id,))


def set_checkpoints_removed(connection: sqlite3.Connection, trial_ids: Iterable[str]) -> None:
    """Notes that the checkpoints of these trials are removed."""
    connection.executemany("DELETE FROM checkpoints WHERE trial_id = ?", [(id_,) for id_ in trial_ids])


def needless_checkpoints(
    connection: sqlite3.Connection,
    kept: int,
    *,
    maximize: bool,
    at_work: Collection[str] = (),
    away: Collection[str] = (),
) -> Iterator[NeedlessCheckpoint]:
    """Noted checkpoints that are not needed. `kept`: number of the best trials whose checkpoints stay; `at_work`:
    excluded trials; `away`: unreachable training services, whose trials are excluded."""
    values = {
        "kept": kept,
        "sign": 1 if maximize else -1,
        "most": _AT_A_TIME,
        "at_work": json.dumps([*at_work]),
        "away": json.dumps([*away]),
    }
    for (trial_id,) in connection.execute(_NEEDLESS, values).fetchall():
        yield NeedlessCheckpoint(trial_id, tuple(_jobs(connection, trial_id)))


def _jobs(connection: sqlite3.Connection, trial_id: str) -> Iterator[tuple[str, JobHandle]]:
    rows = connection.execute(
        "SELECT service, job_name, handle FROM attempts WHERE trial_id = ? AND handle IS NOT NULL", (trial_id,)
    )
    for service, job_name, handle in rows:
        yield service, JobHandle.parse(job_name, handle)
