"""Outboxes read from a folder: which there are, and their complete records from an offset on. Blocks; for threads."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trial_runner import protocol
from trial_runner.wire import foreign_files
from trial_runner.wire.outbox_name import file_name, spelled
from trial_runner.wire.records import Records, read_records

#: Bytes read at once; more only for a single record that is longer.
_READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxLines:
    """Records between two byte offsets of an outbox; what is no record between them is left out."""

    outbox: str
    start: int
    end: int
    lines: tuple[str, ...]


def names(folder: Path) -> list[str]:
    """Outboxes of an attempt, as `wire.outbox_name` spells them. Links, pipes and names with a dot first are none."""
    found = sorted(map(spelled, foreign_files.listing(str(folder), protocol.OUTBOX_FOLDER).files))
    with suppress(OSError):
        foreign_files.size(str(folder), protocol.METRICS_FILE)
        found.append(protocol.METRICS_FILE)
    return found


def next_stretch(
    folder: Path, outbox: str, start: int, *, is_ended: bool, size: int | None = None
) -> OutboxLines | None:
    """The complete lines from `start` on; None: there are none. Raises OSError.

    `is_ended`: nobody writes any more; `size`: so many bytes there are then. As storage may show less for a while, only
    what ends there is taken for the last, and given up where it is no record.
    """
    file = foreign_files.open_file(str(folder), file_name(outbox))
    try:
        is_whole = is_ended and (size is None or os.fstat(file).st_size >= size)
        records = read_records(file, outbox, start, is_whole, _READ_BYTES)
        if is_whole and size is not None and not records.length:
            records = _rest(file, start)
    finally:
        os.close(file)
    if not records.length:
        return None
    return OutboxLines(outbox=outbox, start=start, end=start + records.length, lines=tuple(records.texts))


def _rest(file: int, start: int) -> Records:
    """The bytes after the last record: no record, to be named as such."""
    data = os.pread(file, _READ_BYTES, start)
    return Records([data.decode(errors="replace")] if data else [], len(data), len(data))
