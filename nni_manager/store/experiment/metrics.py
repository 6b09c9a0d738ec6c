"""Results as rows: each line of an outbox is stored once, in order, in one transaction with the outbox's offset."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from nni_manager.domain.metrics import Metric, MetricType
from nni_manager.store.experiment import jobs
from trial_runner.wire.outbox_files import earlier_names


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxPart:
    """Complete lines of one outbox between two byte offsets. Broken lines are left out of `metrics` but counted."""

    job_name: str
    #: Path below the attempt's folder.
    outbox: str
    #: Offsets in the present file of that outbox.
    start: int
    end: int
    #: Number of lines in this chunk, including broken ones.
    lines: int
    #: Numbers are relative to the chunk: 0 is its first line.
    metrics: Sequence[Metric]
    #: Id of the container that wrote the lines; empty: unknown.
    container: str = ""
    #: Sentence about unreadable results, shown with the trial; otherwise empty.
    doubt: str = ""
    #: Exit report of the job's runner that came with the lines, JSON; valid once they are stored. Empty: none.
    runner_exit: str = ""
    #: Size of all outboxes of an attempt in bytes above which intermediate results are dropped; 0: unlimited.
    most_bytes: int = 0


class Stored(Enum):
    """Whether a chunk was stored, or why not."""

    #: Written; its lines are acknowledged.
    NEW = "new"
    #: A repeat; nothing written.
    REPEAT = "repeat"
    #: Earlier lines are missing; send again from the stored offset.
    GAP = "gap"
    #: Its attempt is closed, or a newer container has registered; rejected.
    FENCED = "fenced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The receipt of a chunk: whether it was stored, and its trial."""

    stored: Stored
    trial_id: str = ""
    has_intermediates: bool = False
    #: The runner has reported the command's exit: these may be the last missing lines.
    may_complete: bool = False
    #: Why results of the trial may be missing; only in the first receipt that shows it.
    doubt: str = ""
    #: Stored bytes of the outbox; 0 for a fenced chunk.
    offset: int = 0
    #: The lines contain the first further final results of the experiment.
    has_first_further_final: bool = False


#: Length of an attempt's doubts, in characters, above which none is added.
_DOUBT_CHARACTERS = 1000
#: Doubt about an outbox that was truncated or replaced.
_REPLACED = (
    "{} became shorter or was replaced while it was read: results read earlier are kept, its present lines count as"
    " new, and results in between may be missing; append to it, with >> in a shell"
)
#: Doubt about an attempt that reported more than `OutboxPart.most_bytes`.
_TOO_MUCH = (
    "it reported more than maxResultSize ({} MB): later intermediate results were dropped; report less often or less at"
    " once, or raise maxResultSize"
)


def store(connection: sqlite3.Connection, chunk: OutboxPart, now_ms: int) -> Receipt:
    """Stores a chunk and moves the outbox's offset in the same transaction."""
    found = _attempt(connection, chunk)
    if found is None:
        return Receipt(stored=Stored.FENCED)
    attempt = (found.trial_id, found.number)
    before = _replaced(connection, attempt, chunk.outbox)
    outbox = _known_outbox(connection, attempt, chunk.outbox) or _NEW_OUTBOX
    if chunk.end <= outbox.offset and chunk.start < chunk.end:
        return Receipt(stored=Stored.REPEAT, offset=outbox.offset)
    if chunk.start != outbox.offset:
        return Receipt(stored=Stored.GAP, offset=outbox.offset)
    outbox = _moved(connection, attempt, outbox, chunk)
    if before:
        chunk = replace(chunk, metrics=_without_repeats(connection, before, outbox, chunk.metrics))
    replaced = _REPLACED.format(chunk.outbox.rpartition("/")[0]) if before and outbox.is_new else ""
    chunk, too_much = _within_limit(connection, attempt, chunk)
    doubts = [doubt for doubt in (chunk.doubt, replaced, too_much) if doubt]
    for doubt in doubts:
        _add_doubt(connection, chunk.job_name, doubt)
    taken = _take(connection, chunk, found, outbox, now_ms)
    return Receipt(
        stored=Stored.NEW,
        trial_id=found.trial_id,
        has_intermediates=taken.has_intermediates,
        has_first_further_final=taken.has_first_further_final,
        may_complete=found.may_complete,
        doubt=replaced or too_much,
        offset=chunk.end,
    )


def _within_limit(
    connection: sqlite3.Connection, attempt: tuple[str, int], chunk: OutboxPart
) -> tuple[OutboxPart, str]:
    """The chunk without lines beyond `most_bytes`, and a doubt for the first one that loses results.

    Beyond it only the attempt's first final result is kept, of at most `protocol.MAX_RECORD` bytes.
    """
    if not chunk.most_bytes or not chunk.metrics:
        return chunk, ""
    query = "SELECT sum(offset) FROM outboxes WHERE trial_id = ? AND attempt = ?"
    (size,) = connection.execute(query, attempt).fetchone()
    if size <= chunk.most_bytes:
        return chunk, ""
    query = "SELECT 1 FROM metrics WHERE trial_id = ? AND attempt = ? AND type = ? LIMIT 1"
    has_final = connection.execute(query, (*attempt, MetricType.FINAL)).fetchone() is not None
    finals = [metric for metric in chunk.metrics if metric.type is MetricType.FINAL]
    kept = [] if has_final else finals[:1]
    doubt = _TOO_MUCH.format(chunk.most_bytes // 2**20)
    query = "SELECT 1 FROM attempts WHERE job_name = ? AND instr(doubt, ?)"
    is_known = connection.execute(query, (chunk.job_name, doubt)).fetchone() is not None
    lost = len(kept) < len(chunk.metrics) and not is_known
    return replace(chunk, metrics=kept), doubt if lost else ""


def _add_doubt(connection: sqlite3.Connection, job_name: str, doubt: str) -> None:
    """Adds each sentence once, up to a total length."""
    connection.execute(
        "UPDATE attempts SET doubt = CASE doubt WHEN '' THEN :doubt ELSE doubt || '; ' || :doubt END"
        " WHERE job_name = :job_name AND instr(doubt, :doubt) = 0 AND length(doubt) < :longest",
        {"doubt": doubt, "job_name": job_name, "longest": _DOUBT_CHARACTERS},
    )


class _Sender(NamedTuple):
    """The attempt that reported a part of an outbox."""

    trial_id: str
    number: int
    epoch: int
    #: Its runner has reported the command's exit.
    may_complete: bool
    #: It was given up because its job was unreachable, and has not been revived.
    is_missed: bool = False


def _attempt(connection: sqlite3.Connection, chunk: OutboxPart) -> _Sender | None:
    """The attempt of a chunk; None: closed, or a newer container has registered."""
    row = connection.execute(
        "SELECT trial_id, number, epoch, runner_exit IS NOT NULL, json_extract(containers, '$[#-1]')"
        " FROM attempts WHERE job_name = ? AND closed = 0",
        (chunk.job_name,),
    ).fetchone()
    if row is None and (missed := jobs.missed_attempt(connection, chunk.job_name)) is not None:
        return _Sender(trial_id=missed[0], number=missed[1], epoch=0, may_complete=False, is_missed=True)
    if row is None or (chunk.container and row[4] not in (None, chunk.container)):
        return None
    return _Sender(trial_id=row[0], number=row[1], epoch=row[2], may_complete=bool(row[3]))


class _Outbox(NamedTuple):
    """An outbox file as the attempt's newest container writes it."""

    id: int
    #: Number of stored bytes.
    offset: int
    #: Numbers of its first line, and of the next one.
    first: int
    next: int
    is_new: bool = False


#: A new outbox.
_NEW_OUTBOX = _Outbox(id=0, offset=0, first=0, next=0, is_new=True)


def _moved(connection: sqlite3.Connection, attempt: tuple[str, int], outbox: _Outbox, chunk: OutboxPart) -> _Outbox:
    """The outbox with its row, whose offset is now the end of the chunk."""
    if not outbox.is_new:
        update = "UPDATE outboxes SET offset = base + ?, lines = lines + ? WHERE id = ?"
        connection.execute(update, (chunk.end, chunk.lines, outbox.id))
        return outbox
    insert = "INSERT INTO outboxes (trial_id, attempt, name, offset, lines) VALUES (?, ?, ?, ?, ?)"
    row = connection.execute(insert, (*attempt, chunk.outbox, chunk.end, chunk.lines))
    assert row.lastrowid is not None, "a row was inserted"
    return outbox._replace(id=row.lastrowid)


def _known_outbox(connection: sqlite3.Connection, attempt: tuple[str, int], name: str) -> _Outbox | None:
    row = connection.execute(
        "SELECT id, offset - base, base_lines, lines FROM outboxes WHERE trial_id = ? AND attempt = ? AND name = ?",
        (*attempt, name),
    ).fetchone()
    return None if row is None else _Outbox(*row)


def _replaced(connection: sqlite3.Connection, attempt: tuple[str, int], name: str) -> list[_Outbox]:
    """The outboxes that this one replaced, latest first: for ``a/3``, ``a/2`` and ``a``. Usually empty."""
    found: list[_Outbox] = []
    for earlier in earlier_names(name):
        known = _known_outbox(connection, attempt, earlier)
        if known is None:
            return []
        found.insert(0, known)
    return found


def _without_repeats(
    connection: sqlite3.Connection, before: Sequence[_Outbox], outbox: _Outbox, metrics: Sequence[Metric]
) -> Sequence[Metric]:
    """The metrics without leading ones that were also in the replaced files, and so are stored already."""
    query = "SELECT 1 FROM metrics WHERE outbox = ? AND number >= ? LIMIT 1"
    if connection.execute(query, (outbox.id, outbox.first)).fetchone():
        return metrics
    known: dict[int, tuple[str, str]] = {}
    limit = before[0].next - before[0].first
    for earlier in before:
        limit = min(limit, earlier.next - earlier.first)
        rows = connection.execute(
            "SELECT number - :first, type, data FROM metrics"
            " WHERE outbox = :outbox AND number >= :first AND number < :first + :limit ORDER BY number",
            {"first": earlier.first, "outbox": earlier.id, "limit": limit},
        ).fetchall()
        known |= {line: (type_, data) for line, type_, data in rows}
        limit = rows[0][0] if rows else limit  # earlier lines are in an earlier file
    line = outbox.next - outbox.first
    repeats = itertools.takewhile(lambda m: known.get(line + m.number) == (m.type, m.data), metrics)
    return metrics[len(list(repeats)) :]


class _Taken(NamedTuple):
    """The inserted metrics of a trial's current attempt."""

    has_intermediates: bool = False
    has_first_further_final: bool = False


def _take(connection: sqlite3.Connection, chunk: OutboxPart, attempt: _Sender, outbox: _Outbox, now_ms: int) -> _Taken:
    """Inserts the metrics."""
    if attempt.is_missed:
        (count,) = connection.execute(
            "SELECT count(*) FROM metrics WHERE trial_id = ? AND attempt = ? AND type = ?",
            (attempt.trial_id, attempt.number, MetricType.PERIODICAL),
        ).fetchone()
        _insert(connection, chunk, attempt, outbox, int(count), now_ms)
        return _Taken()
    has_intermediates = any(metric.type is MetricType.PERIODICAL for metric in chunk.metrics)
    sequence = _next_sequence(connection, attempt.trial_id) if has_intermediates else 0
    intermediates = _insert(connection, chunk, attempt, outbox, sequence, now_ms) if chunk.metrics else 0
    if has_intermediates:
        newest = next(metric for metric in reversed(chunk.metrics) if metric.type is MetricType.PERIODICAL)
        connection.execute(
            "UPDATE trials SET intermediates = ?, last_value = coalesce(?, last_value) WHERE id = ?",
            (sequence + intermediates, newest.value, attempt.trial_id),
        )
    finals = [metric for metric in chunk.metrics if metric.type is MetricType.FINAL]
    is_first_further = bool(finals) and _take_finals(connection, finals, attempt)
    return _Taken(has_intermediates, is_first_further)


def _take_finals(connection: sqlite3.Connection, finals: Sequence[Metric], attempt: _Sender) -> bool:
    """The first final result of the attempt counts; further ones are only counted.

    Returns whether they are the first further ones of the experiment. A restarted container reports its final result
    again, which is not a further one.
    """
    is_first = connection.execute(
        "UPDATE trials SET final_data = ?, final_value = ? WHERE id = ? AND final_data IS NULL",
        (finals[0].data, finals[0].value, attempt.trial_id),
    ).rowcount
    further = len(finals) - 1 if is_first or _is_first_of_epoch(connection, attempt, len(finals)) else len(finals)
    if not further:
        return False
    none_yet = connection.execute("SELECT 1 FROM trials WHERE further_finals > 0 LIMIT 1").fetchone() is None
    connection.execute(
        "UPDATE trials SET further_finals = further_finals + ? WHERE id = ?", (further, attempt.trial_id)
    )
    return none_yet


def _is_first_of_epoch(connection: sqlite3.Connection, attempt: _Sender, inserted: int) -> bool:
    """Whether the final results just `inserted` are the first ones of the attempt's present container."""
    if not attempt.epoch:
        return False
    (stored,) = connection.execute(
        "SELECT count(*) FROM metrics WHERE trial_id = ? AND attempt = ? AND type = ? AND epoch = ?",
        (attempt.trial_id, attempt.number, MetricType.FINAL, attempt.epoch),
    ).fetchone()
    return bool(stored == inserted)


def _next_sequence(connection: sqlite3.Connection, trial_id: str) -> int:
    (sequence,) = connection.execute("SELECT intermediates FROM trials WHERE id = ?", (trial_id,)).fetchone()
    return int(sequence)


def _insert(
    connection: sqlite3.Connection, chunk: OutboxPart, attempt: _Sender, outbox: _Outbox, sequence: int, now_ms: int
) -> int:
    """Returns the number of intermediate results; `sequence`: number of the first one."""
    first, rows = sequence, []
    for metric in chunk.metrics:
        place = 0
        if metric.type is MetricType.PERIODICAL:
            place, sequence = sequence, sequence + 1
        rows.append(
            (
                outbox.id,
                outbox.next + metric.number,
                attempt.trial_id,
                attempt.number,
                metric.type,
                place,
                now_ms,
                metric.data,
                metric.value,
                attempt.epoch,
                metric.step,
            )
        )
    connection.executemany(
        "INSERT INTO metrics (outbox, number, trial_id, attempt, type, sequence, stored_ms, data, value, epoch,"
        " step) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    return sequence - first
