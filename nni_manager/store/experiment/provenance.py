"""What was recorded of the code, the Python and the machine of an experiment's caller: one JSON text.

Functions take a connection and run inside the caller's transaction.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from nni_manager.domain.text import spelled


def put(connection: sqlite3.Connection, record: Mapping[str, Any]) -> None:
    """Stores the record in place of an earlier one."""
    connection.execute("DELETE FROM provenance")
    connection.execute("INSERT INTO provenance (record) VALUES (?)", (spelled(json.dumps(dict(record))),))


def load(connection: sqlite3.Connection) -> dict[str, Any] | None:
    """The record; None: nothing was recorded."""
    row = connection.execute("SELECT record FROM provenance").fetchone()
    return None if row is None else dict(json.loads(row[0]))
