"""NNI's own tables. `ExperimentProfile` gets a row at every save; the other two are views (see the first migration)."""

from __future__ import annotations

import sqlite3


def save_profile(connection: sqlite3.Connection) -> None:
    """Appends a row with the experiment as it stands; NNI's tools read the one with the highest revision."""
    connection.execute("UPDATE experiment SET revision = revision + 1")
    connection.execute(
        "INSERT INTO ExperimentProfile"
        " (params, id, execDuration, startTime, endTime, logDir, nextSequenceId, revision)"
        " SELECT config, id, exec_ms / 1000, created_ms, ended_ms, folder, next_sequence_id, revision FROM experiment"
    )
