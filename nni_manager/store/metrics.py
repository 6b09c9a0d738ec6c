"""Results as rows: each line of an outbox is stored once, in order, together with how far the outbox was read."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from nni_manager.domain.metrics import Metric, MetricType


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Complete lines of one outbox between two byte offsets. Broken lines are left out of `metrics` but counted."""

    job_name: str
    #: Path below the attempt's folder.
    outbox: str
    start: int
    end: int
    #: Lines in this stretch, broken ones included.
    lines: int
    #: Numbers are relative to the stretch: 0 is its first line.
    metrics: Sequence[Metric]


class Stored(Enum):
    """What became of a chunk."""

    #: Written; its lines are acknowledged.
    NEW = "new"
    #: Known already; nothing written.
    REPEAT = "repeat"
    #: Something before it is missing; ask for it again from the stored offset.
    GAP = "gap"
    #: Its attempt is decided; nothing is taken from it any more.
    FENCED = "fenced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a chunk, and whose it was."""

    stored: Stored
    trial_id: str = ""
    has_intermediates: bool = False
    #: Its runner has said that the command is over: this may have been the last that was waited for.
    may_complete: bool = False


def store(connection: sqlite3.Connection, chunk: Chunk, now_ms: int) -> Receipt:
    """Stores a chunk and moves the outbox's offset in the same transaction."""
    row = connection.execute(
        "SELECT trial_id, number, runner_exit IS NOT NULL FROM attempts WHERE job_name = ? AND closed = 0",
        (chunk.job_name,),
    ).fetchone()
    if row is None:
        return Receipt(stored=Stored.FENCED)
    attempt, may_complete = row[:2], bool(row[2])
    outbox, offset, number = _outbox(connection, attempt, chunk.outbox)
    if chunk.end <= offset and chunk.start < chunk.end:
        return Receipt(stored=Stored.REPEAT)
    if chunk.start != offset:
        return Receipt(stored=Stored.GAP)
    connection.execute(
        "UPDATE outboxes SET offset = ?, lines = lines + ? WHERE id = ?", (chunk.end, chunk.lines, outbox)
    )
    has_intermediates = _take(connection, chunk, attempt, outbox, number, now_ms)
    return Receipt(
        stored=Stored.NEW, trial_id=attempt[0], has_intermediates=has_intermediates, may_complete=may_complete
    )


def _outbox(connection: sqlite3.Connection, attempt: tuple[str, int], name: str) -> tuple[int, int, int]:
    """(id, offset, number of the next line) of an outbox, made when it is new."""
    key = (*attempt, name)
    query = "SELECT id, offset, lines FROM outboxes WHERE trial_id = ? AND attempt = ? AND name = ?"
    row = connection.execute(query, key).fetchone()
    if row is None:
        insert = "INSERT INTO outboxes (trial_id, attempt, name) VALUES (?, ?, ?) RETURNING id, offset, lines"
        row = connection.execute(insert, key).fetchone()
    return row[0], row[1], row[2]


def _take(
    connection: sqlite3.Connection, chunk: Chunk, attempt: tuple[str, int], outbox: int, number: int, now_ms: int
) -> bool:
    """`number`: of the stretch's first line. Whether there are intermediate results in it."""
    has_intermediates = any(metric.type is MetricType.PERIODICAL for metric in chunk.metrics)
    sequence = _next_sequence(connection, attempt[0]) if has_intermediates else 0
    intermediates = _insert(connection, chunk, attempt, outbox, number, sequence, now_ms) if chunk.metrics else 0
    if has_intermediates:
        _note_intermediates(connection, attempt[0], sequence + intermediates, chunk.metrics)
    if intermediates < len(chunk.metrics):
        _note_final(connection, attempt[0], chunk.metrics)
    return has_intermediates


def _next_sequence(connection: sqlite3.Connection, trial_id: str) -> int:
    """Of the trial's next intermediate result."""
    (sequence,) = connection.execute("SELECT intermediates FROM trials WHERE id = ?", (trial_id,)).fetchone()
    return int(sequence)


def _insert(
    connection: sqlite3.Connection, chunk: Chunk, attempt: tuple[str, int], outbox: int, number: int, sequence: int,
    now_ms: int,
) -> int:  # fmt: skip
    """`sequence`: of the stretch's first intermediate result. How many of them there are."""
    trial_id, attempt_number = attempt
    first, rows = sequence, []
    for metric in chunk.metrics:
        place = 0
        if metric.type is MetricType.PERIODICAL:
            place, sequence = sequence, sequence + 1
        rows.append((outbox, number + metric.number, trial_id, attempt_number, metric.type, place, now_ms,
                     metric.data, metric.value))  # fmt: skip
    connection.executemany(
        "INSERT INTO metrics (outbox, number, trial_id, attempt, type, sequence, stored_ms, data, value)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    return sequence - first


def _note_intermediates(connection: sqlite3.Connection, trial_id: str, count: int, metrics: Sequence[Metric]) -> None:
    """On the trial: how many it has by now, and the number of the newest, if that has one."""
    newest = next(metric for metric in reversed(metrics) if metric.type is MetricType.PERIODICAL)
    connection.execute(
        "UPDATE trials SET intermediates = ?, last_value = coalesce(?, last_value) WHERE id = ?",
        (count, newest.value, trial_id),
    )


def _note_final(connection: sqlite3.Connection, trial_id: str, metrics: Sequence[Metric]) -> None:
    """On the trial: the first of all its final results."""
    first = next(metric for metric in metrics if metric.type is MetricType.FINAL)
    connection.execute(
        "UPDATE trials SET final_data = ?, final_value = ? WHERE id = ? AND final_data IS NULL",
        (first.data, first.value, trial_id),
    )
