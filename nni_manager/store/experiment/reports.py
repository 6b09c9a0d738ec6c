"""Reports of training services on jobs, stored with their attempts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from nni_manager.domain.attempt import Observation
from nni_manager.domain.evidence import killed_process
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait
from nni_manager.store.experiment.jobs import BACK_AGAIN, MISSED


def set_report(
    connection: sqlite3.Connection, job_name: str, report: Observation, now_ms: int, apart_ms: int = 0
) -> bool:
    """Stores an observation. Final states stay, RUNNING does not become PENDING again, and UNKNOWN only sets whether
    the job is unreachable. `apart_ms`: wall clock minus steady clock, for its times.

    A closed attempt only accepts its end, if the runner's exit closed it before the platform's report. If that end
    shows that a process was killed, the trial's message says so. Returns whether this message or the job's link, place
    or reachability changed.
    """
    before = connection.execute(f"SELECT {_SHOWN} FROM attempts WHERE job_name = ?", (job_name,)).fetchone()
    if report.state is JobState.UNKNOWN:
        after = _set_reach(connection, job_name, report, now_ms)
    else:
        moments = report.moments(apart_ms)
        after = _set_seen(connection, job_name, report, moments, now_ms)
        if after is None:
            _hear_again(connection, job_name, report, moments, now_ms)
        elif (doubt := killed_process(report)) and _add_doubt(connection, job_name, doubt):
            return True
    return after is not None and after != before


def _add_doubt(connection: sqlite3.Connection, job_name: str, doubt: str) -> bool:
    """Adds a doubt to the message of a trial whose last attempt was closed before; returns whether there is one."""
    cursor = connection.execute(
        "UPDATE trials SET message = CASE trials.message WHEN '' THEN '' ELSE trials.message || '; ' END || :doubt"
        " FROM attempts a WHERE a.job_name = :job_name AND a.closed = 1 AND a.trial_id = trials.id"
        " AND a.number = trials.attempt AND trials.status IN ('SUCCEEDED', 'FAILED')",
        {"doubt": doubt, "job_name": job_name},
    )
    return cursor.rowcount > 0


#: Columns of a job, besides its state, that a report may change.
_SHOWN = "link, place, unreachable"
_Shown = tuple[str, str, str]
#: Start and end, in milliseconds since the epoch.
_Moments = tuple[int | None, int | None]


def _set_seen(
    connection: sqlite3.Connection, job_name: str, report: Observation, moments: _Moments, now_ms: int
) -> _Shown | None:
    """Returns the displayed columns of the job; None: the observation was not stored."""
    started_ms, ended_ms = moments
    cursor = connection.execute(
        "UPDATE attempts SET state = CASE WHEN state = 'RUNNING' AND :state = 'PENDING' THEN state ELSE :state END,"
        " exit_code = :exit_code, signal = :signal, native_reason = :native_reason, cause = :cause, message = :message,"
        " stderr_tail = :stderr_tail, started_ms = coalesce(max(:started_ms, intended_ms), started_ms),"
        " ended_ms = max(:ended_ms, coalesce(max(:started_ms, intended_ms), started_ms, :ended_ms)),"
        " final_seen_ms = CASE WHEN :is_final THEN :now_ms END, is_uncounted = :is_uncounted,"
        f" {BACK_AGAIN}, wait_code = :wait_code, wait_sentence = :wait_sentence, wait_details = :wait_details,"
        " hopeless_ms = CASE WHEN :is_hopeless THEN coalesce(hopeless_ms, :now_ms) END,"
        " link = CASE WHEN :link = '' THEN link ELSE :link END,"
        " place = CASE WHEN :place = '' THEN place ELSE :place END"
        " WHERE job_name = :job_name AND state IN ('INTENT', 'PENDING', 'RUNNING')"
        " AND (closed = 0 OR :is_final AND forgotten = 0 AND runner_exit IS NOT NULL)"
        f" RETURNING {_SHOWN}",
        {
            "state": report.state,
            "exit_code": report.exit_code,
            "signal": report.signal,
            "native_reason": report.native_reason,
            "cause": report.cause or "",
            "message": report.message,
            "stderr_tail": report.stderr_tail,
            "started_ms": started_ms,
            "ended_ms": ended_ms,
            "is_final": report.state.is_final,
            "is_uncounted": report.is_uncounted,
            "now_ms": now_ms,
            "job_name": job_name,
            **_wait_columns(report.wait),
            "link": report.link,
            "place": report.place,
        },
    )
    shown: _Shown | None = cursor.fetchone()
    return shown


def _wait_columns(wait: Wait | None) -> Mapping[str, str | bool]:
    if wait is None:
        return {"wait_code": "", "wait_sentence": "", "wait_details": "{}", "is_hopeless": False}
    return {
        "wait_code": wait.code,
        "wait_sentence": wait.sentence,
        "wait_details": json.dumps(wait.details),
        "is_hopeless": wait.is_hopeless,
    }


def _hear_again(
    connection: sqlite3.Connection, job_name: str, report: Observation, moments: _Moments, now_ms: int
) -> None:
    """Stores the first observation of a missed job that is reachable again."""
    connection.execute(
        "UPDATE attempts SET state = ?, exit_code = ?, signal = ?, native_reason = ?, cause = ?, message = ?,"
        " stderr_tail = ?, started_ms = coalesce(?, started_ms), ended_ms = ?, final_seen_ms = ?,"
        " is_uncounted = ?"
        f" WHERE job_name = ? AND final_seen_ms IS NULL AND {MISSED}",
        (
            report.state,
            report.exit_code,
            report.signal,
            report.native_reason,
            report.cause or "",
            report.message,
            report.stderr_tail,
            *moments,
            now_ms if report.state.is_final else None,
            report.is_uncounted,
            job_name,
        ),
    )


def _set_reach(connection: sqlite3.Connection, job_name: str, report: Observation, now_ms: int) -> _Shown | None:
    """Stores since when a job is unreachable, which a restart of the daemon does not reset; or that it is reachable.
    Returns the displayed columns of the job; None: nothing was stored."""
    gone = "unreachable_ms = coalesce(unreachable_ms, :now_ms), unreachable = :sentence"
    cursor = connection.execute(
        f"UPDATE attempts SET {gone if report.unreachable else BACK_AGAIN}"
        " WHERE job_name = :job_name AND closed = 0 AND state IN ('INTENT', 'PENDING', 'RUNNING')"
        f" RETURNING {_SHOWN}",
        {"sentence": report.unreachable, "now_ms": now_ms, "job_name": job_name},
    )
    shown: _Shown | None = cursor.fetchone()
    return shown
