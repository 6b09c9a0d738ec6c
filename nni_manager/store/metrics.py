"""Results as rows: each line of an outbox is stored once, in order, together with how far the outbox was read."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    #: Why results of the trial may be missing, when this chunk shows it for the first time.
    doubt: str = ""


#: Of an outbox that takes the place of another one.
_REPLACED = (
    "{} became shorter or another file while it was read: what had been read of it is kept, what it holds now counts as"
    " new, and results between the two may be missing; append to it, with >> in a shell"
)


def store(connection: sqlite3.Connection, chunk: Chunk, now_ms: int) -> Receipt:
    """Stores a chunk and moves the outbox's offset in the same transaction."""
    row = connection.execute(
        "SELECT trial_id, number, runner_exit IS NOT NULL FROM attempts WHERE job_name = ? AND closed = 0",
        (chunk.job_name,),
    ).fetchone()
    if row is None:
        return Receipt(stored=Stored.FENCED)
    attempt, may_complete = row[:2], bool(row[2])
    before = _replaced(connection, attempt, chunk.outbox)
    outbox, offset, number, is_new = _outbox(connection, attempt, chunk.outbox)
    if chunk.end <= offset and chunk.start < chunk.end:
        return Receipt(stored=Stored.REPEAT)
    if chunk.start != offset:
        return Receipt(stored=Stored.GAP)
    connection.execute(
        "UPDATE outboxes SET offset = ?, lines = lines + ? WHERE id = ?", (chunk.end, chunk.lines, outbox)
    )
    if before:
        chunk = replace(chunk, metrics=_without_repeats(connection, before, outbox, number, chunk.metrics))
    has_intermediates = _take(connection, chunk, attempt, outbox, number, now_ms)
    doubt = _REPLACED.format(chunk.outbox.rpartition("/")[0]) if before and is_new else ""
    if doubt:
        connection.execute("UPDATE trials SET doubt = ? WHERE id = ?", (doubt, attempt[0]))
    return Receipt(
        stored=Stored.NEW, trial_id=attempt[0], has_intermediates=has_intermediates, may_complete=may_complete,
        doubt=doubt,
    )  # fmt: skip


def _replaced(connection: sqlite3.Connection, attempt: tuple[str, int], name: str) -> list[tuple[int, int]]:
    """(id, lines) of the outboxes that this one took the place of, the last first; ``a/3`` those of ``a/2`` and ``a``.

    Empty for one that took nobody's place, as most do.
    """
    file, _, number = name.rpartition("/")
    if not (number.isascii() and number.isdecimal() and int(number) > 1):
        return []
    query = "SELECT id, lines FROM outboxes WHERE trial_id = ? AND attempt = ? AND name = ?"
    names = [*(f"{file}/{earlier}" for earlier in range(int(number) - 1, 1, -1)), file]
    rows = [connection.execute(query, (*attempt, one)).fetchone() for one in names]
    return rows if all(rows) else []


def _without_repeats(
    connection: sqlite3.Connection, before: Sequence[tuple[int, int]], outbox: int, number: int,
    metrics: Sequence[Metric],
) -> Sequence[Metric]:  # fmt: skip
    """What is left when those are taken away that stand at the beginning of both files: they are stored."""
    if connection.execute("SELECT 1 FROM metrics WHERE outbox = ? LIMIT 1", (outbox,)).fetchone():
        return metrics
    known: dict[int, tuple[str, str]] = {}
    limit = before[0][1]
    for earlier, lines in before:
        limit = min(limit, lines)
        query = "SELECT number, type, data FROM metrics WHERE outbox = ? AND number < ? ORDER BY number"
        rows = connection.execute(query, (earlier, limit)).fetchall()
        known |= {line: (type_, data) for line, type_, data in rows}
        limit = rows[0][0] if rows else limit  # what came before it was in an earlier one already
    repeats = itertools.takewhile(lambda m: known.get(number + m.number) == (m.type, m.data), metrics)
    return metrics[len(list(repeats)) :]


def _outbox(connection: sqlite3.Connection, attempt: tuple[str, int], name: str) -> tuple[int, int, int, bool]:
    """(id, offset, number of the next line, whether it is new) of an outbox, made when it is new."""
    key = (*attempt, name)
    query = "SELECT id, offset, lines FROM outboxes WHERE trial_id = ? AND attempt = ? AND name = ?"
    row = connection.execute(query, key).fetchone()
    is_new = row is None
    if row is None:
        insert = "INSERT INTO outboxes (trial_id, attempt, name) VALUES (?, ?, ?) RETURNING id, offset, lines"
        row = connection.execute(insert, key).fetchone()
    return row[0], row[1], row[2], is_new


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
