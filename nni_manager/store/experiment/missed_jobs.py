"""Missed attempts: given up because their job was unreachable, while the trial is open. They may be revived."""

from __future__ import annotations

import sqlite3

from nni_manager.domain.attempt import Attempt
from nni_manager.store.experiment.jobs import ATTEMPT_COLUMNS, BACK_AGAIN, MISSED


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
