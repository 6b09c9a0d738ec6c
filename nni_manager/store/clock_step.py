"""A step of the wall clock while trials ran: what is not over yet is told by the new clock from now on.

Time limits are judged by stored moments, so each moves by as much as the clock did. What is over stays as it was.
"""

from __future__ import annotations

import sqlite3

#: Moments of what is open, by table.
_MOMENTS = {
    "trials": ("created_ms", "started_ms"),
    "attempts": ("intended_ms", "started_ms", "ended_ms", "runner_exit_ms", "final_seen_ms"),
}
_OPEN = {"trials": "status IN ('WAITING', 'RUNNING', 'UNKNOWN')", "attempts": "closed = 0"}


def follow(connection: sqlite3.Connection, step_ms: int, now_ms: int) -> None:
    """`step_ms`: how far the clock was set forward, or back (negative); `now_ms`: by the new clock."""
    for table, moments in _MOMENTS.items():
        moved = ", ".join(f"{moment} = {moment} + ?1" for moment in moments)  # what is not known stays NULL
        connection.execute(f"UPDATE {table} SET {moved} WHERE {_OPEN[table]}", (step_ms,))
    connection.execute("UPDATE experiment SET counted_ms = min(counted_ms + ?, ?)", (step_ms, now_ms))
