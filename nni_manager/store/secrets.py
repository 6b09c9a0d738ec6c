"""Secrets of one experiment: values beside the config, which holds references. Never log them."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping


def put(connection: sqlite3.Connection, values: Mapping[str, str]) -> None:
    """Reference → value; others stay."""
    connection.executemany("INSERT OR REPLACE INTO secrets (reference, value) VALUES (?, ?)", values.items())


def keep_only(connection: sqlite3.Connection, references: Collection[str]) -> None:
    """Removes all secrets but these, as nothing refers to the others any more."""
    gone = [(reference,) for reference in load(connection).keys() - set(references)]
    connection.executemany("DELETE FROM secrets WHERE reference = ?", gone)


def load(connection: sqlite3.Connection) -> dict[str, str]:
    """The secrets of an experiment: reference → value."""
    return dict(connection.execute("SELECT reference, value FROM secrets").fetchall())
