"""The experiment's row. Functions take a connection and run inside the caller's transaction.

Time limits compare stored times, so those of open trials are shifted when the clock is set; ended ones stay.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nni_manager.domain.endpoint import Endpoint
from nni_manager.domain.errors import StoreCorrupt
from nni_manager.domain.experiment import ExperimentStatus, ExperimentWarning, Hold, HoldCode, StoredExperiment
from nni_manager.domain.text import spelled
from nni_manager.store.nni import nni_format

#: The three columns of the hold, then the other fields of `StoredExperiment` in order.
_COLUMNS = ", ".join(
    ["hold_code, hold_sentence, hold_details", *(name for name in StoredExperiment._fields if name != "hold")]
)


_ACTIVE = ", ".join(f"'{status}'" for status in ExperimentStatus if status.is_active)
#: Whether time counts towards `maxExperimentDuration`.
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
    class_direction: str = "",
    warnings: Sequence[ExperimentWarning] = (),
    owner: str = "",
) -> None:
    connection.execute(
        "INSERT INTO experiment (id, status, config, interpreter, folder, created_ms, counted_ms, nonce, storage_key,"
        " class_direction, warnings, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
            class_direction,
            spelled(json.dumps([asdict(warning) for warning in warnings])),
            owner,
        ),
    )
    nni_format.save_profile(connection)


def require_row(connection: sqlite3.Connection) -> None:
    """Raises StoreCorrupt for a database without an experiment."""
    if connection.execute("SELECT 1 FROM experiment").fetchone() is None:
        raise StoreCorrupt(f"the database {path_of(connection)} contains no experiment; restore it from a backup")


def path_of(connection: sqlite3.Connection) -> Path:
    """The file of an open database."""
    _, _, path = connection.execute("PRAGMA database_list").fetchone()
    return Path(path)


def load(connection: sqlite3.Connection) -> StoredExperiment:
    """The experiment's record. Raises StoreCorrupt for a database without one."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM experiment").fetchone()
    if row is None:
        require_row(connection)
    (code, sentence, details), (id_, status, error), others = row[:3], row[3:6], row[6:]
    hold = Hold(code=HoldCode(code), sentence=sentence, details=details) if code else None
    return StoredExperiment(id_, ExperimentStatus(status), error, hold, *others)


def warnings(connection: sqlite3.Connection) -> tuple[ExperimentWarning, ...]:
    """Warnings with which its file was accepted."""
    (text,) = connection.execute("SELECT warnings FROM experiment").fetchone()
    return tuple(ExperimentWarning(**one) for one in json.loads(text))


def begin_stop(connection: sqlite3.Connection, now_ms: int) -> None:
    """Makes the experiment end its trials; ignores a stopped one."""
    if load(connection).status is not ExperimentStatus.STOPPED:
        set_status(connection, ExperimentStatus.STOPPING, now_ms)


def set_folder(connection: sqlite3.Connection, folder: str) -> None:
    """The folder may have been moved since it was written."""
    connection.execute("UPDATE experiment SET folder = ?", (folder,))


def set_owner(connection: sqlite3.Connection, owner: str) -> None:
    """Stores the identity of the data directory whose daemon opens it."""
    connection.execute("UPDATE experiment SET owner = ? WHERE owner <> ?", (owner, owner))


def set_endpoint(connection: sqlite3.Connection, endpoint: Endpoint | None) -> None:
    """Stores the endpoint, so that a daemon without an index restores the port."""
    columns = (None, None) if endpoint is None else (endpoint.port, endpoint.prefix)
    connection.execute("UPDATE experiment SET view_port = ?, view_prefix = ?", columns)


def set_status(connection: sqlite3.Connection, status: ExperimentStatus, now_ms: int, error: str = "") -> None:
    """Sets `ended_ms` on DONE, ERROR and STOPPED, clears it on active statuses, and counts time up to now. A stop of a
    DONE experiment is noted in `ended_as`."""
    count_time(connection, now_ms)
    connection.execute(
        "UPDATE experiment SET status = :status, error = :error, ended_as = CASE WHEN :status NOT IN"
        " ('STOPPING', 'STOPPED') THEN '' WHEN status = 'DONE' THEN status ELSE ended_as END",
        {"status": status, "error": error},
    )
    if status.is_active:
        connection.execute("UPDATE experiment SET ended_ms = NULL")
    elif status is not ExperimentStatus.STOPPING:
        connection.execute("UPDATE experiment SET ended_ms = coalesce(ended_ms, max(?, created_ms))", (now_ms,))
    nni_format.save_profile(connection)


def set_ended_as(connection: sqlite3.Connection, ended_as: str) -> None:
    """Stores how it ended, as in `StoredExperiment.ended_as`."""
    connection.execute("UPDATE experiment SET ended_as = ?", (ended_as,))


def set_hold(connection: sqlite3.Connection, hold: Hold | None, now_ms: int | None = None) -> None:
    """Stores the hold, or clears it. `now_ms`: count time up to then. Invalid UTF-8 in a tuner's sentence is
    escaped."""
    if now_ms is not None:
        count_time(connection, now_ms)
    values = (hold.code, spelled(hold.sentence), spelled(hold.details)) if hold else ("", "", "")
    connection.execute("UPDATE experiment SET hold_code = ?, hold_sentence = ?, hold_details = ?", values)


def forget_failures(connection: sqlite3.Connection) -> None:
    """On resume: earlier failures and unusable results do not count towards the next hold."""
    connection.execute("UPDATE experiment SET resumed_end = ended_trials, unusable_results = 0")


def set_unusable_results(connection: sqlite3.Connection, count: int | None) -> None:
    """Stores the count, as in `StoredExperiment.unusable_results`."""
    connection.execute("UPDATE experiment SET unusable_results = ?", (count,))


def set_config(connection: sqlite3.Connection, config: str) -> None:
    connection.execute("UPDATE experiment SET config = ?", (config,))
    nni_format.save_profile(connection)


def count_time(connection: sqlite3.Connection, now_ms: int) -> None:
    """Adds the time since the last count if the experiment is active and not on hold."""
    connection.execute(
        "UPDATE experiment SET counted_ms = :now_ms,"
        f" exec_ms = exec_ms + CASE WHEN {_COUNTS} THEN max(0, :now_ms - counted_ms) ELSE 0 END",
        {"now_ms": now_ms},
    )


def count_to_last_event(connection: sqlite3.Connection, now_ms: int) -> None:
    """Counts time up to the last stored event: no process worked on the experiment after it."""
    last_ms = (
        "max(coalesce((SELECT max(coalesce(ended_ms, started_ms, created_ms)) FROM trials), 0),"
        " coalesce((SELECT stored_ms FROM metrics ORDER BY id DESC LIMIT 1), 0))"
    )
    connection.execute(
        "UPDATE experiment SET counted_ms = :now_ms,"
        f" exec_ms = exec_ms + CASE WHEN {_COUNTS} THEN max(0, min(:now_ms, {last_ms}) - counted_ms) ELSE 0 END",
        {"now_ms": now_ms},
    )


def add_import(connection: sqlite3.Connection, data: str, now_ms: int) -> None:
    """`data`: JSON list of {parameter, value}."""
    connection.execute("INSERT INTO imports (stored_ms, data) VALUES (?, ?)", (now_ms, data))


#: Columns to shift, by table.
_MOMENTS = {
    "trials": ("created_ms", "started_ms", "wait_ms"),
    "attempts": (
        "intended_ms",
        "started_ms",
        "ended_ms",
        "runner_exit_ms",
        "final_seen_ms",
        "unreachable_ms",
        "hopeless_ms",
    ),
}
_OPEN_ROWS = {"trials": "status IN ('WAITING', 'RUNNING', 'UNKNOWN')", "attempts": "closed = 0"}


def shift_times(connection: sqlite3.Connection, step_ms: int, now_ms: int) -> None:
    """Shifts the times of open trials and attempts. `step_ms`: clock change (negative: back); `now_ms`: new clock."""
    for table, moments in _MOMENTS.items():
        moved = ", ".join(f"{moment} = {moment} + :step_ms" for moment in moments)  # NULL stays NULL
        connection.execute(f"UPDATE {table} SET {moved} WHERE {_OPEN_ROWS[table]}", {"step_ms": step_ms})
    connection.execute("UPDATE experiment SET counted_ms = min(counted_ms + ?, ?)", (step_ms, now_ms))


def put_provenance(connection: sqlite3.Connection, record: Mapping[str, Any]) -> None:
    """Stores the record in place of an earlier one."""
    connection.execute("DELETE FROM provenance")
    connection.execute("INSERT INTO provenance (record) VALUES (?)", (spelled(json.dumps(dict(record))),))


def provenance(connection: sqlite3.Connection) -> dict[str, Any] | None:
    """The record; None: nothing was recorded."""
    row = connection.execute("SELECT record FROM provenance").fetchone()
    return None if row is None else dict(json.loads(row[0]))
