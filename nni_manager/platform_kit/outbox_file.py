"""Outboxes read from a folder: which there are, and their complete records from an offset on. Blocks; for threads."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trial_runner import protocol

#: Bytes read at once.
_READ_BYTES = 256 * 1024
_FRAME = re.compile(re.escape(protocol.METRICS_FILE_MARK) + rb"([0-9]{%d})" % protocol.METRICS_FILE_DIGITS)
_FRAME_HEAD = len(protocol.METRICS_FILE_MARK) + protocol.METRICS_FILE_DIGITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Records between two byte offsets of an outbox; what is no record between them is left out."""

    outbox: str
    start: int
    end: int
    lines: tuple[str, ...]


def names(folder: Path) -> list[str]:
    """Outboxes of an attempt, as paths below its folder. Links, pipes and names that begin with a dot are none."""
    found = sorted(_below(folder, protocol.OUTBOX_FOLDER))
    return [*found, protocol.METRICS_FILE] if _is_regular(folder / protocol.METRICS_FILE) else found


def next_stretch(folder: Path, outbox: str, start: int, *, is_all: bool) -> Stretch | None:
    """What is complete from `start` on; None: nothing. `is_all`: nobody writes any more. Raises OSError."""
    file = os.open(folder / outbox, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return _next(file, outbox, start, is_all)
    finally:
        os.close(file)


def _next(file: int, outbox: str, start: int, is_all: bool) -> Stretch | None:
    cut = _cut_frames if outbox == protocol.METRICS_FILE else _cut_lines
    size = _READ_BYTES
    while True:
        data = os.pread(file, size, start)
        lines, length = cut(data, is_all and len(data) < size)
        if length or len(data) < size:
            break
        if size >= protocol.MAX_LINE:
            lines, length = _pass_over(file, start, is_all)
            break
        size = min(4 * size, protocol.MAX_LINE)
    return Stretch(outbox=outbox, start=start, end=start + length, lines=tuple(lines)) if length else None


def _pass_over(file: int, start: int, is_all: bool) -> tuple[list[str], int]:
    """A line that is too long, once its end is there: another line says so in its place."""
    position = start + protocol.MAX_LINE
    while (data := os.pread(file, protocol.MAX_LINE, position)) and b"\n" not in data:
        position += len(data)
    if not data and not is_all:
        return [], 0
    length = position + data.find(b"\n") + 1 - start
    return [json.dumps({"type": protocol.TOO_LONG, "bytes": length, "limit": protocol.MAX_LINE})], length


_Cut = Callable[[bytes, bool], tuple[list[str], int]]


def _cut_lines(data: bytes, is_last: bool) -> tuple[list[str], int]:
    """(records, bytes they take). A last line that nobody ends any more counts when it is JSON."""
    length = data.rfind(b"\n") + 1
    lines = data[: length - 1].decode(errors="replace").split("\n") if length else []
    if is_last and _is_json(data[length:]):
        return [*lines, data[length:].decode(errors="replace")], len(data)
    return lines, length


def _cut_frames(data: bytes, is_last: bool) -> tuple[list[str], int]:
    """As `_cut_lines`, of frames: a mark, the length of what follows, its newline included, and that."""
    lines: list[str] = []
    position = 0
    while (mark := _FRAME.search(data, position)) is not None:
        end = mark.end() + int(mark[1])
        if end > len(data) and not is_last:
            return lines, mark.start()
        if end <= len(data) and data[end - 1 : end] == b"\n":
            lines.append(data[mark.end() : end - 1].decode(errors="replace"))
            position = end
        else:
            position = mark.start() + 1
    # the last bytes may be the beginning of a mark
    return lines, len(data) if is_last else max(position, len(data) - _FRAME_HEAD + 1)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _below(folder: Path, name: str) -> Iterator[str]:
    try:
        with os.scandir(folder / name) as entries:
            seen = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return
    for entry in seen:
        path = f"{name}/{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            yield from _below(folder, path)
        elif entry.is_file(follow_symlinks=False):
            yield path


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
