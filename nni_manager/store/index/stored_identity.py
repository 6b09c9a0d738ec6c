"""The data directory's name on other machines, stored in the index and in the file `identity`."""

from __future__ import annotations

import sqlite3


def put(connection: sqlite3.Connection, name: str) -> None:
    """Stores the data directory's name on other machines."""
    connection.execute("DELETE FROM identity")
    connection.execute("INSERT INTO identity (name) VALUES (?)", (name,))


def load(connection: sqlite3.Connection) -> tuple[str, str]:
    """(the data directory's name, its path at that time); empty: not stored."""
    row = connection.execute("SELECT (SELECT name FROM identity), (SELECT directory FROM home)").fetchone()
    return row[0] or "", row[1] or ""
