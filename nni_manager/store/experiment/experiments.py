"""The one row that is an experiment. Functions take a connection and run inside the caller's transaction.

Time limits are judged by stored moments, so each moves by as much as the clock did. What is over stays as it was.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict

from nni_manager.domain.endpoint import Endpoint
from nni_manager.domain.experiment import ExperimentStatus, ExperimentWarning, Hold, HoldCode, StoredExperiment
from nni_manager.domain.text import spelled
from nni_manager.store.nni import nni_format

#: Three that make the hold, then the fields of the row without it, in their order.
_COLUMNS = ", ".join(
    ["hold_code, hold_sentence, hold_details", *(name for name in StoredExperiment._fields if name != "hold")]
)


#: The schemas that have the columns.
_WARNINGS_SINCE, _STORAGE_KEY_SINCE = 4, 12
_ACTIVE = ", ".join(f"'{status}'" for status in ExperimentStatus if status.is_active)
#: Its time counts towards `maxExperimentDuration`.
_COUNTS = f"status IN ({_ACTIVE}) AND hold_code = ''"


def create(
    connection: sqlite3.Connection,
    *,
    id: str,
    config: str,
    interpreter: str,
    folder: str,
    now_ms: int,
    nonce: str = "",
    storage_key: str = "",
    warnings: Sequence[ExperimentWarning] = (),
) -> None:
    connection.execute(
        "INSERT INTO experiment (id, status, config, interpreter, folder, created_ms, counted_ms, nonce, storage_key,"
        " warnings) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            id,
            ExperimentStatus.RUNNING,
            config,
            interpreter,
            folder,
            now_ms,
            now_ms,
            nonce,
            storage_key,
            spelled(json.dumps([asdict(warning) for warning in warnings])),
        ),
    )
    nni_format.save_profile(connection)


def is_missing(connection: sqlite3.Connection) -> bool:
    """Somebody put an empty database here."""
    return connection.execute("SELECT 1 FROM experiment").fetchone() is None


def load(connection: sqlite3.Connection) -> StoredExperiment:
    row = connection.execute(f"SELECT {_COLUMNS} FROM experiment").fetchone()
    (code, sentence, details), (id_, status, error), others = row[:3], row[3:6], row[6:]
    hold = Hold(code=HoldCode(code), sentence=sentence, details=details) if code else None
    return StoredExperiment(id_, ExperimentStatus(status), error, hold, *others)


def interpreter(connection: sqlite3.Connection) -> str:
    """The Python of whoever created the experiment."""
    return str(connection.execute("SELECT interpreter FROM experiment").fetchone()[0])


def warnings(connection: sqlite3.Connection) -> tuple[ExperimentWarning, ...]:
    """Warnings with which its file was accepted. A database of an earlier version that nobody could write has none."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < _WARNINGS_SINCE:
        return ()
    (text,) = connection.execute("SELECT warnings FROM experiment").fetchone()
    return tuple(ExperimentWarning(**one) for one in json.loads(text))


def nonce(connection: sqlite3.Connection) -> str:
    """Carried by its jobs, see `domain.job.JobSpec`; empty: not compared."""
    return str(connection.execute("SELECT nonce FROM experiment").fetchone()[0])


def storage_key(connection: sqlite3.Connection) -> str:
    """See `platform_kit.contract.Host`. A database of an earlier version that nobody could write has none."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < _STORAGE_KEY_SINCE:
        return ""
    return str(connection.execute("SELECT storage_key FROM experiment").fetchone()[0])


def folder(connection: sqlite3.Connection) -> str:
    """The folder of the experiment when it was opened last."""
    return str(connection.execute("SELECT folder FROM experiment").fetchone()[0])


def set_folder(connection: sqlite3.Connection, folder: str) -> None:
    """The folder may have been moved since it was written."""
    connection.execute("UPDATE experiment SET folder = ?", (folder,))


def set_endpoint(connection: sqlite3.Connection, endpoint: Endpoint | None) -> None:
    """Stores the endpoint, so that a daemon that has lost its index finds the port again."""
    columns = (None, None) if endpoint is None else (endpoint.port, endpoint.prefix)
    connection.execute("UPDATE experiment SET view_port = ?, view_prefix = ?", columns)


def set_status(connection: sqlite3.Connection, status: ExperimentStatus, now_ms: int, error: str = "") -> None:
    """`ended_ms` is set by DONE, ERROR and STOPPED and cleared by what is active again. Time is counted up to now."""
    count_time(connection, now_ms)
    connection.execute("UPDATE experiment SET status = ?, error = ?", (status, error))
    if status.is_active:
        connection.execute("UPDATE experiment SET ended_ms = NULL")
    elif status is not ExperimentStatus.STOPPING:
        connection.execute("UPDATE experiment SET ended_ms = coalesce(ended_ms, max(?, created_ms))", (now_ms,))
    nni_format.save_profile(connection)


def set_hold(connection: sqlite3.Connection, hold: Hold | None, now_ms: int | None = None) -> None:
    """Stores the hold, or that there is none; a tuner's sentence may be no UTF-8, which SQLite takes alone. `now_ms`:
    time is counted up to then."""
    if now_ms is not None:
        count_time(connection, now_ms)
    values = (hold.code, spelled(hold.sentence), spelled(hold.details)) if hold else ("", "", "")
    connection.execute("UPDATE experiment SET hold_code = ?, hold_sentence = ?, hold_details = ?", values)


def forget_failures(connection: sqlite3.Connection) -> None:
    """Resume: what failed so far does not count towards the next hold."""
    connection.execute("UPDATE experiment SET resumed_end = ended_trials")


def set_config(connection: sqlite3.Connection, config: str) -> None:
    connection.execute("UPDATE experiment SET config = ?", (config,))
    nni_format.save_profile(connection)


def count_time(connection: sqlite3.Connection, now_ms: int) -> None:
    """Adds the time since the last count when the experiment was active in it, and not on hold."""
    connection.execute(
        "UPDATE experiment SET counted_ms = ?1,"
        f" exec_ms = exec_ms + CASE WHEN {_COUNTS} THEN max(0, ?1 - counted_ms) ELSE 0 END",
        (now_ms,),
    )


def count_to_last_event(connection: sqlite3.Connection, now_ms: int) -> None:
    """Counts up to the last that is known to have happened, and nothing after it: nobody was at work."""
    last_ms = "coalesce((SELECT max(coalesce(ended_ms, started_ms, created_ms)) FROM trials), 0)"
    connection.execute(
        "UPDATE experiment SET counted_ms = ?1,"
        f" exec_ms = exec_ms + CASE WHEN {_COUNTS} THEN max(0, min(?1, {last_ms}) - counted_ms) ELSE 0 END",
        (now_ms,),
    )


def add_import(connection: sqlite3.Connection, data: str, now_ms: int) -> None:
    """`data`: JSON list of {parameter, value}."""
    connection.execute("INSERT INTO imports (stored_ms, data) VALUES (?, ?)", (now_ms, data))


#: Moments of what is open, by table.
_MOMENTS = {
    "trials": ("created_ms", "started_ms", "wait_ms"),
    "attempts": ("intended_ms", "started_ms", "ended_ms", "runner_exit_ms", "final_seen_ms", "unreachable_ms"),
}
_OPEN_ROWS = {"trials": "status IN ('WAITING', 'RUNNING', 'UNKNOWN')", "attempts": "closed = 0"}


def shift_moments(connection: sqlite3.Connection, step_ms: int, now_ms: int) -> None:
    """`step_ms`: how far the clock was set forward, or back (negative); `now_ms`: by the new clock."""
    for table, moments in _MOMENTS.items():
        moved = ", ".join(f"{moment} = {moment} + ?1" for moment in moments)  # what is not known stays NULL
        connection.execute(f"UPDATE {table} SET {moved} WHERE {_OPEN_ROWS[table]}", (step_ms,))
    connection.execute("UPDATE experiment SET counted_ms = min(counted_ms + ?, ?)", (step_ms, now_ms))
