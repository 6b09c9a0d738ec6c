"""Warnings about the trials of an experiment; a few indexed reads, as each description includes them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from nni_manager.domain.experiment import ExperimentWarning
from nni_manager.domain.trial import ignored_finals
from nni_manager.store.experiment import code_states, unrecorded_trials


def load(connection: sqlite3.Connection) -> tuple[ExperimentWarning, ...]:
    """All of them."""
    return (
        *code_states.warnings(connection),
        *_further_finals(connection),
        *_noted(connection),
        *unrecorded_trials.warnings(connection),
    )


def note(connection: sqlite3.Connection, warning: ExperimentWarning) -> bool:
    """Stores a warning, unless its code has one already; returns whether it was stored."""
    cursor = connection.execute(
        "INSERT OR IGNORE INTO noted_warnings (code, message) VALUES (?, ?)", (warning.code, warning.message)
    )
    return cursor.rowcount > 0


def _noted(connection: sqlite3.Connection) -> Iterator[ExperimentWarning]:
    for code, message in connection.execute("SELECT code, message FROM noted_warnings ORDER BY code"):
        yield ExperimentWarning(code=code, message=message)


def _further_finals(connection: sqlite3.Connection) -> Iterator[ExperimentWarning]:
    row = connection.execute(
        "SELECT id, further_finals FROM trials WHERE further_finals > 0 ORDER BY sequence_id LIMIT 1"
    ).fetchone()
    if row is not None:
        trial_id, count = row
        message = f"trial {trial_id}: {ignored_finals(count)}; the first final result of a trial counts"
        yield ExperimentWarning(code="FURTHER_FINAL_RESULTS", message=message)
