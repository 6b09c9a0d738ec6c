"""States of the code that trials run in place, and the time at which each one began.

A trial's state is that of its start; no data is stored per trial. A state has a number. If the same content returns, it
gets the number of the first state with identical files.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from nni_manager.domain.experiment import ExperimentWarning

#: Maximum number of numbered states; code that changes more often is not tracked any more.
MOST_STATES = 100
#: Maximum number of paths named in a change.
_MOST_PATHS = 20


class CodeFile(NamedTuple):
    """A file of the code at one moment."""

    bytes: int
    mtime_ns: int
    #: Hash of its content; empty: it is missing.
    digest: str


Files = Mapping[str, CodeFile]


class CodeState(NamedTuple):
    number: int
    files: Files


#: The number of the code state that attempt `c` ran; null: it did not run in place, or the code was not known yet.
OF_ATTEMPT = (
    "(SELECT number FROM code_changes s WHERE s.service = c.service AND s.since_ms <="
    " coalesce(c.started_ms, c.intended_ms) ORDER BY s.since_ms DESC LIMIT 1)"
)


#: Number and files of the states of a service.
_OF_SERVICE = (
    "SELECT number, files FROM code_states WHERE number IN (SELECT number FROM code_changes WHERE service = ?)"
    " ORDER BY number"
)


def latest(connection: sqlite3.Connection, service: str) -> CodeState | None:
    """The last known state of a service's code; None: not checked yet."""
    row = connection.execute(
        "SELECT s.number, s.files FROM code_changes c JOIN code_states s ON s.number = c.number"
        " WHERE c.service = ? ORDER BY c.since_ms DESC LIMIT 1",
        (service,),
    ).fetchone()
    return None if row is None else CodeState(row[0], _files(row[1]))


def record(
    connection: sqlite3.Connection, service: str, files: Files, since_ms: int, changed: Sequence[str] = ()
) -> CodeState | None:
    """Notes the state of a service's code since then; `changed`: paths that differ from the state before.

    Returns the state, with the number of an earlier one if the content is the same; None: there are too many, and later
    trials have no number.
    """
    state = _known(connection, service, files) or _new(connection, files)
    has_run = "SELECT 1 FROM attempts WHERE service = ? AND closed = 1 LIMIT 1"
    if not changed and connection.execute(has_run, (service,)).fetchone() is None:
        since_ms = 0
    connection.execute(
        "INSERT INTO code_changes (service, since_ms, number, paths) VALUES (?1, max(?2, 1 + coalesce((SELECT"
        " max(since_ms) FROM code_changes WHERE service = ?1), -1)), ?3, ?4)",
        (service, since_ms, state.number if state else None, json.dumps(list(changed)[:_MOST_PATHS])),
    )
    return state


def drop_files(connection: sqlite3.Connection, service: str, paths: Collection[str]) -> None:
    """Stops comparing these files, as trials of the service write them."""
    for number, text in connection.execute(_OF_SERVICE, (service,)).fetchall():
        kept = {path: file for path, file in _files(text).items() if path not in paths}
        connection.execute("UPDATE code_states SET files = ? WHERE number = ?", (json.dumps(kept), number))


def has_run_since(connection: sqlite3.Connection, service: str, ms: int) -> bool:
    """Whether a trial of the service began after this time, in milliseconds since the epoch, and has ended."""
    query = "SELECT 1 FROM attempts WHERE service = ? AND closed = 1 AND coalesce(started_ms, intended_ms) > ? LIMIT 1"
    return connection.execute(query, (service, ms)).fetchone() is not None


def set_first_trials(connection: sqlite3.Connection) -> bool:
    """Notes the first trial that ran each state, if there is one by now; returns whether some state lacks it."""
    connection.execute(
        "UPDATE code_changes SET trial_id = coalesce((SELECT a.trial_id FROM attempts a"
        " WHERE a.service = code_changes.service AND coalesce(a.started_ms, a.intended_ms) >= code_changes.since_ms"
        " ORDER BY a.intended_ms LIMIT 1), '') WHERE trial_id = '' AND since_ms > 0"
    )
    waits = "SELECT 1 FROM code_changes WHERE trial_id = '' AND since_ms > 0 LIMIT 1"
    return connection.execute(waits).fetchone() is not None


def warnings(connection: sqlite3.Connection) -> Iterator[ExperimentWarning]:
    """A warning about the first change that trials ran, with the number of later ones."""
    rows = connection.execute(
        "SELECT c.paths, c.number, c.trial_id, t.sequence_id FROM code_changes c JOIN trials t ON t.id = c.trial_id"
        " WHERE c.paths <> '[]' AND c.number IS NOT NULL ORDER BY c.since_ms"
    ).fetchall()
    if rows:
        trial_id, sequence = rows[0][2:]
        first = [row for row in rows if row[2] == trial_id]
        paths, number = [path for row in first for path in json.loads(row[0])], first[-1][1]
        more = f", and {len(rows) - len(first)} more times later" if len(rows) > len(first) else ""
        message = (
            f"the code changed while trials ran in place ({named(paths)}): trial {trial_id} (number"
            f" {sequence}) is the first to run the new code, state {number}{more}; compare only trials with the"
            " same code state, or start a new experiment; list files that trials write in .nniignore"
        )
        yield ExperimentWarning(code="CODE_CHANGED", message=message)


def named(paths: Sequence[str]) -> str:
    """Some of the paths, and their number."""
    some = ", ".join(paths[:3])
    return f"{some} and {len(paths) - 3} more" if len(paths) > 3 else some


def _known(connection: sqlite3.Connection, service: str, files: Files) -> CodeState | None:
    """The first state of the service with identical files."""
    for number, text in connection.execute(_OF_SERVICE, (service,)):
        known = _files(text)
        if known and all(path in files and files[path].digest == one.digest for path, one in known.items()):
            return CodeState(number, known)
    return None


def _new(connection: sqlite3.Connection, files: Files) -> CodeState | None:
    (count,) = connection.execute("SELECT count(*) FROM code_states").fetchone()
    if count >= MOST_STATES:
        return None
    row = connection.execute("INSERT INTO code_states (files) VALUES (?)", (json.dumps(files),))
    assert row.lastrowid is not None, "a row was inserted"
    return CodeState(row.lastrowid, files)


def _files(text: str) -> dict[str, CodeFile]:
    return {path: CodeFile(*values) for path, values in json.loads(text).items()}
