"""Results as rows: each line of an outbox is stored once, in order, together with how far the outbox was read."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from nni_manager.domain.metrics import Metric, MetricType


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Complete lines of one outbox between two byte offsets. Broken lines are left out of `metrics` but counted."""

    job_name: str
    #: Path below the attempt's folder.
    outbox: str
    #: In the present file of that outbox.
    start: int
    end: int
    #: Lines in this stretch, broken ones included.
    lines: int
    #: Numbers are relative to the stretch: 0 is its first line.
    metrics: Sequence[Metric]
    #: Who read or posted it; empty: nobody who has an identity.
    container: str = ""
    #: A sentence about what could not be taken, for whoever looks at the trial; else empty.
    doubt: str = ""


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
    found = _attempt(connection, chunk)
    if found is None:
        return Receipt(stored=Stored.FENCED)
    attempt = (found.trial_id, found.number)
    outbox, offset, number = _outbox(connection, attempt, chunk.outbox)
    if chunk.end <= offset and chunk.start < chunk.end:
        return Receipt(stored=Stored.REPEAT)
    if chunk.start != offset:
        return Receipt(stored=Stored.GAP)
    connection.execute(
        "UPDATE outboxes SET offset = base + ?, lines = lines + ? WHERE id = ?", (chunk.end, chunk.lines, outbox)
    )
    if chunk.doubt:
        connection.execute(
            "UPDATE attempts SET doubt = ? WHERE job_name = ? AND doubt = ''", (chunk.doubt, chunk.job_name)
        )
    has_intermediates = _take(connection, chunk, found, outbox, number, now_ms)
    return Receipt(
        stored=Stored.NEW, trial_id=found.trial_id, has_intermediates=has_intermediates,
        may_complete=found.may_complete,
    )  # fmt: skip


class _Attempt(NamedTuple):
    trial_id: str
    number: int
    epoch: int
    #: Its runner has said that the command is over.
    may_complete: bool


def _attempt(connection: sqlite3.Connection, chunk: Chunk) -> _Attempt | None:
    """None: it is decided, or a newer container of it has greeted."""
    row = connection.execute(
        "SELECT trial_id, number, epoch, runner_exit IS NOT NULL, json_extract(containers, '$[#-1]')"
        " FROM attempts WHERE job_name = ? AND closed = 0",
        (chunk.job_name,),
    ).fetchone()
    if row is None or (chunk.container and row[4] not in (None, chunk.container)):
        return None
    return _Attempt(trial_id=row[0], number=row[1], epoch=row[2], may_complete=bool(row[3]))


def _outbox(connection: sqlite3.Connection, attempt: tuple[str, int], name: str) -> tuple[int, int, int]:
    """(id, offset in its present file, number of the next line) of an outbox, made when it is new."""
    key = (*attempt, name)
    columns = "id, offset - base, lines"
    row = connection.execute(
        f"SELECT {columns} FROM outboxes WHERE trial_id = ? AND attempt = ? AND name = ?", key
    ).fetchone()
    if row is None:
        insert = f"INSERT INTO outboxes (trial_id, attempt, name) VALUES (?, ?, ?) RETURNING {columns}"
        row = connection.execute(insert, key).fetchone()
    return row[0], row[1], row[2]


def _take(
    connection: sqlite3.Connection, chunk: Chunk, attempt: _Attempt, outbox: int, number: int, now_ms: int
) -> bool:
    """`number`: of the stretch's first line. Whether there are intermediate results in it."""
    has_intermediates = any(metric.type is MetricType.PERIODICAL for metric in chunk.metrics)
    sequence = _next_sequence(connection, attempt.trial_id) if has_intermediates else 0
    intermediates = _insert(connection, chunk, attempt, outbox, number, sequence, now_ms) if chunk.metrics else 0
    if has_intermediates:
        _note_intermediates(connection, attempt.trial_id, sequence + intermediates, chunk.metrics)
    if intermediates < len(chunk.metrics):
        _note_final(connection, attempt.trial_id, chunk.metrics)
    return has_intermediates


def _next_sequence(connection: sqlite3.Connection, trial_id: str) -> int:
    """Of the trial's next intermediate result."""
    (sequence,) = connection.execute("SELECT intermediates FROM trials WHERE id = ?", (trial_id,)).fetchone()
    return int(sequence)


def _insert(
    connection: sqlite3.Connection, chunk: Chunk, attempt: _Attempt, outbox: int, number: int, sequence: int,
    now_ms: int,
) -> int:  # fmt: skip
    """`sequence`: of the stretch's first intermediate result. How many of them there are."""
    first, rows = sequence, []
    for metric in chunk.metrics:
        place = 0
        if metric.type is MetricType.PERIODICAL:
            place, sequence = sequence, sequence + 1
        rows.append((outbox, number + metric.number, attempt.trial_id, attempt.number, metric.type, place, now_ms,
                     metric.data, metric.value, attempt.epoch))  # fmt: skip
    connection.executemany(
        "INSERT INTO metrics (outbox, number, trial_id, attempt, type, sequence, stored_ms, data, value, epoch)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
