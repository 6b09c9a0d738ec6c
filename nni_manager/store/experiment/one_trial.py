"""Reads about one trial that pages show beside the API's answer."""

from __future__ import annotations

import sqlite3

from nni_manager.domain.errors import NotFound


def id_of(connection: sqlite3.Connection, number: int) -> str:
    """The id of the trial with this sequence id. Raises NotFound."""
    row = connection.execute("SELECT id FROM trials WHERE sequence_id = ?", (number,)).fetchone()
    if row is None:
        raise NotFound(f"there is no trial number {number}")
    return str(row[0])


def neighbours(connection: sqlite3.Connection, number: int) -> tuple[int | None, int | None]:
    """The numbers of the trials before and after this one; None: there is none."""
    found: tuple[int | None, int | None] = connection.execute(
        "SELECT (SELECT max(sequence_id) FROM trials WHERE sequence_id < :n),"
        " (SELECT min(sequence_id) FROM trials WHERE sequence_id > :n)",
        {"n": number},
    ).fetchone()
    return found


def repetitions(connection: sqlite3.Connection, id: str) -> list[int]:
    """The numbers of the trials that repeat this one, oldest first; a hundred at most."""
    rows = connection.execute("SELECT sequence_id FROM trials WHERE repeats = ? ORDER BY sequence_id LIMIT 100", (id,))
    return [number for (number,) in rows]


def number_of(connection: sqlite3.Connection, id: str) -> int | None:
    """The number of a trial; None: there is no such trial."""
    row = connection.execute("SELECT sequence_id FROM trials WHERE id = ?", (id,)).fetchone()
    return row and int(row[0])
