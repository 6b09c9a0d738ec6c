"""Training services as rows: their holds, and the sections of removed ones."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from nni_manager.domain.experiment import Hold, HoldCode


class ServiceRow(NamedTuple):
    name: str
    #: Why it is not used; None: it is used.
    hold: Hold | None
    #: Its section; secrets are references.
    settings: Mapping[str, Any]
    #: It takes no new attempts.
    is_removed: bool


def load(connection: sqlite3.Connection) -> dict[str, ServiceRow]:
    """The services by name; a folder that NNI created has none."""
    rows = connection.execute(
        "SELECT name, hold_code, hold_sentence, hold_details, settings, removed FROM services ORDER BY name"
    )
    return {row[0]: _row(*row) for row in rows}


def holds(connection: sqlite3.Connection) -> dict[str, Hold | None]:
    """Service → its hold: what a turn needs, without the settings."""
    rows = connection.execute("SELECT name, hold_code, hold_sentence, hold_details FROM services")
    return {name: _hold(*hold) for name, *hold in rows}


def _row(name: str, code: str, sentence: str, details: str, settings: str, removed: int) -> ServiceRow:
    return ServiceRow(name, _hold(code, sentence, details), json.loads(settings), bool(removed))


def _hold(code: str, sentence: str, details: str) -> Hold | None:
    return Hold(code=HoldCode(code), sentence=sentence, details=details) if code else None


def remove_others(connection: sqlite3.Connection, names: Collection[str]) -> None:
    """Marks all other services as removed."""
    gone = [(name,) for name in load(connection) if name not in names]
    connection.executemany("UPDATE services SET removed = 1 WHERE name = ?", gone)


def put(connection: sqlite3.Connection, name: str, settings: Mapping[str, Any]) -> None:
    """Adds or updates a service and marks it as not removed; its hold stays."""
    connection.execute(
        "INSERT INTO services (name, settings, removed) VALUES (?, ?, 0)"
        " ON CONFLICT (name) DO UPDATE SET settings = excluded.settings, removed = 0",
        (name, json.dumps(settings)),
    )


def set_hold(connection: sqlite3.Connection, name: str, hold: Hold | None) -> None:
    """Stores a service's hold; None clears it."""
    code, sentence, details = (hold.code, hold.sentence, hold.details) if hold is not None else ("", "", "")
    connection.execute(
        "INSERT INTO services (name, hold_code, hold_sentence, hold_details) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET hold_code = excluded.hold_code, hold_sentence = excluded.hold_sentence,"
        " hold_details = excluded.hold_details",
        (name, code, sentence, details),
    )


def open_attempts(connection: sqlite3.Connection) -> dict[str, int]:
    """Service → number of open attempts of open trials; services without any are missing."""
    query = (
        "SELECT a.service, count(*) FROM trials t JOIN attempts a ON a.trial_id = t.id AND a.number = t.attempt"
        " WHERE t.status IN ('WAITING', 'RUNNING', 'UNKNOWN') AND a.closed = 0 GROUP BY a.service"
    )
    return dict(connection.execute(query).fetchall())


def clear_holds(connection: sqlite3.Connection, now_ms: int) -> None:
    """Ends all holds of services; the minute of hopeless waits begins again."""
    connection.execute("UPDATE attempts SET hopeless_ms = ? WHERE hopeless_ms IS NOT NULL AND closed = 0", (now_ms,))
    connection.execute("UPDATE services SET hold_code = '', hold_sentence = '', hold_details = ''")
