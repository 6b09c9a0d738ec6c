"""The files of a trial runner in its folder: registration, outboxes, end of its command, logs; and the file that keeps
it from starting. Blocks; for threads.

The folder is on storage of others: its files may be incomplete, invalid, huge or links.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nni_manager.domain.ids import CONTAINER
from nni_manager.domain.version import is_legible
from nni_manager.shared_storage import kept_logs
from trial_runner import protocol
from trial_runner.wire import foreign_files
from trial_runner.wire.descriptors import Descriptor
from trial_runner.wire.outbox_files import HOLE, Records, file_name, is_outbox, read_records

log = logging.getLogger(__name__)

_COPY_BYTES = 1024 * 1024
#: An impossible file size.
_MOST_BYTES = 2**53
#: Maximum size of `runner.json` and `exit.json`, which name up to `protocol.MOST_OUTBOXES` outboxes.
_REPORT_BYTES = 1024 * 1024
#: Maximum length of a runner's sentence.
_MOST_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    #: None: missing or unreadable.
    version: str | None
    #: Id of its container; empty: it has none.
    container: str
    #: Size of each outbox at its start in bytes; None: not given.
    outboxes: Mapping[str, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a command, by the runner's clock; one of the first two fields is set."""

    exit_code: int | None
    signal: int | None
    started_ms: int | None
    ended_ms: int | None
    #: False: the runner could not even start it.
    was_started: bool
    #: Id of the container that wrote it; empty: it has none.
    container: str
    #: Size of each outbox and log in bytes; None: not given.
    outboxes: Mapping[str, int] | None
    logs: Mapping[str, int]
    #: Missing parts of its outboxes; empty: nothing, or not given.
    gone: str

    def lacks_read(self, offsets: Mapping[str, int]) -> bool:
        """Whether the runner found less of an outbox than was read of it (`offsets`)."""
        there = self.outboxes
        if there is None or len(there) >= protocol.MOST_OUTBOXES:
            return False
        return any(
            offset > there.get(name, 0) for name, offset in offsets.items() if is_outbox(name) and "/." not in name
        )


def read_registration(folder: Path) -> Registration | None:
    """The registration that the runner wrote; None: none is readable yet. Raises OSError."""
    report = _read_report(folder, protocol.RUNNER_FILE)
    if report is None:
        return None
    version = report.get("version")
    shown = version.strip() if isinstance(version, str) and is_legible(version) else ""
    return Registration(version=shown or None, container=_container(report), outboxes=_sizes(report.get("outboxes")))


def read_end(folder: Path) -> End | None:
    """The runner's report of the end; None: none is readable yet. Raises OSError."""
    report = _read_report(folder, protocol.EXIT_FILE)
    if report is None:
        return None
    exit_code, signal = _number(report.get("exit_code")), _number(report.get("signal"))
    if (exit_code is None) == (signal is None) or not {"exit_code", "signal"} <= report.keys():
        _complain(folder / protocol.EXIT_FILE)
        return None
    sizes = _sizes(report.get("outboxes"))
    return End(
        exit_code=exit_code,
        signal=signal,
        started_ms=_number(report.get("started_ms")),
        ended_ms=_number(report.get("ended_ms")),
        was_started=report.get("pid") != 0,
        container=_container(report),
        # other files are never read, and so never waited for
        outboxes=sizes and {name: size for name, size in sizes.items() if is_outbox(name)},
        logs=_sizes(report.get("logs")) or {},
        gone=_sentence(report.get("gone")),
    )


def _sentence(told: object) -> str:
    return told[:_MOST_CHARACTERS] if isinstance(told, str) else ""


def ask_to_stop(folder: Path) -> None:
    """Keeps a runner that has not started its command from starting it. Raises OSError."""
    foreign_files.write_whole(str(folder), protocol.STOP_FILE, b"", 0o644)


def missing_logs(target: Path, sizes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Incompletely copied logs, each with the number of copied bytes and its size."""
    have = {name: _come(target, name) for name in protocol.LOG_FILES}
    return {name: (size, sizes[name]) for name, size in have.items() if size < sizes.get(name, 0)}


def _come(target: Path, name: str) -> int:
    with suppress(OSError):
        return kept_logs.size(str(target), name)
    return 0


class CopiedLogs(NamedTuple):
    """The result of copying logs once."""

    #: Number of copied bytes.
    size: int
    #: A log has zeros at its offset: bytes that have not arrived, or that the command printed.
    has_hole: bool


def copy_logs(folder: Path, target: Path, most_bytes: int, *, takes_holes: bool = False) -> CopiedLogs:
    """Copies new parts of the logs, up to zeros unless `takes_holes`. A log that does not exist yet is skipped.

    `most_bytes`: for all logs in `target`, as in `kept_logs`. Raises OSError of the target's disk.
    """
    if folder == target:
        return CopiedLogs(0, False)
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    copied = [_copy(str(folder), str(target), name, most_bytes, takes_holes) for name in protocol.LOG_FILES]
    return CopiedLogs(sum(one.size for one in copied), any(one.has_hole for one in copied))


def _copy(source: str, target: str, name: str, most_bytes: int, takes_holes: bool) -> CopiedLogs:
    try:
        size = start = kept_logs.size(target, name)
    except FileNotFoundError:
        size = start = 0
    has_hole = False
    while not has_hole and (read := _read_if_there(source, name, size)):
        data = read if takes_holes else read.partition(HOLE)[0]
        has_hole = len(data) < len(read)
        size = kept_logs.append(target, name, size, data, most_bytes)
    return CopiedLogs(size - start, has_hole)


def _read_report(folder: Path, name: str) -> Mapping[str, Any] | None:
    """The JSON object in a runner's file; None: there is none yet. Raises OSError."""
    try:
        report = json.loads(foreign_files.read(str(folder), name, 0, _REPORT_BYTES))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        report = None
    if isinstance(report, dict):
        return report
    _complain(folder / name)
    return None


def _complain(path: Path) -> None:
    log.warning("%s is not in the format of a trial runner; ignoring it", path)


def _container(report: Mapping[str, Any]) -> str:
    told = report.get("container")
    return told if isinstance(told, str) and CONTAINER.fullmatch(told) else ""


def _sizes(told: object) -> dict[str, int] | None:
    """The sizes by name; None if the runner wrote something else."""
    if not isinstance(told, dict):
        return None
    sizes = {name: _number(size) for name, size in told.items()}
    return {name: size for name, size in sizes.items() if size is not None and 0 <= size < _MOST_BYTES}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _read_if_there(folder: str, name: str, offset: int) -> bytes:
    try:
        return foreign_files.read(folder, name, offset, _COPY_BYTES)
    except OSError:
        return b""  # it is tried again


#: Bytes per read; more only for a single longer record.
_OUTBOX_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxLines:
    """Records between two byte offsets of an outbox; bytes in between that are not records are left out."""

    start: int
    end: int
    lines: tuple[str, ...]


def next_outbox_stretch(
    folder: Path,
    outbox: str,
    start: int,
    *,
    is_ended: bool,
    size: int | None = None,
    takes_holes: bool = False,
    until: int | None = None,
) -> OutboxLines | None:
    """The complete lines of an outbox from `start` on; None: there are none. Raises OSError.

    `is_ended`: the outbox is complete; `size`: its final size in bytes. As storage may show less for a while, an
    incomplete record at the end is given up only when that many bytes are there. `takes_holes`: zeros, which stand for
    bytes that have not arrived, are read as they are. `until`: offset before which the records end.
    """
    most = _OUTBOX_BYTES if until is None else min(_OUTBOX_BYTES, max(0, until - start))
    with Descriptor(foreign_files.open_file(str(folder), file_name(outbox))) as file:
        is_whole = is_ended and (size is None or os.fstat(file).st_size >= size)
        is_whole = is_whole and (takes_holes or HOLE not in os.pread(file, _OUTBOX_BYTES, start))
        records = read_records(file, outbox, start, is_whole, most)
        if is_whole and size is not None and not records.length:
            rest = os.pread(file, _OUTBOX_BYTES, start)  # not a record, and reported as such
            records = Records([rest.decode(errors="replace")] if rest else [], len(rest), len(rest))
    if not records.length or (until is not None and start + records.length > until):
        return None
    return OutboxLines(start=start, end=start + records.length, lines=tuple(records.texts))
