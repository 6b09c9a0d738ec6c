"""Reads SQLite's write-ahead log from outside, to detect a commit in progress.

A commit appends its pages as frames, and marks only the last one; see "The WAL File Format" in SQLite's
documentation. Frames after the last mark belong to an incomplete commit if they continue its checksum; others are
left over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_BIG_ENDIAN_WORDS = 0x377F0683


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Contents of a log while its writer is paused."""

    #: Bytes up to the end of the last complete commit.
    committed: int
    #: Bytes of one page with its frame header.
    frame: int
    #: Whether pages of an incomplete commit follow.
    is_amid_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    is_commit: bool
    salts: tuple[int, int]
    checksum: tuple[int, int]
    #: Input of the checksum, in addition to the previous checksum.
    summed: bytes


def read_log(path: Path) -> Log | None:
    """`path`: the log, ``…-wal``; None: it is empty."""
    content = path.read_bytes() if path.exists() else b""
    if len(content) < _HEADER.size:
        return None
    magic, _, page_size, _, *rest = _HEADER.unpack_from(content)
    salts, checksum = (rest[0], rest[1]), (rest[2], rest[3])
    frames = [frame for frame in _frames(content, page_size) if frame.salts == salts]
    count = max((number for number, frame in enumerate(frames, 1) if frame.is_commit), default=0)
    before = frames[count - 1].checksum if count else checksum
    order = ">" if magic == _BIG_ENDIAN_WORDS else "<"
    goes_on = count < len(frames) and _continued(before, frames[count].summed, order) == frames[count].checksum
    length = _FRAME.size + page_size
    return Log(committed=_HEADER.size + count * length, frame=length, is_amid_commit=goes_on)


def _frames(content: bytes, page_size: int) -> Iterator[_Frame]:
    """Complete frames."""
    length = _FRAME.size + page_size
    for start in range(_HEADER.size, len(content) - length + 1, length):
        _, size_after_commit, salt1, salt2, sum1, sum2 = _FRAME.unpack_from(content, start)
        page = content[start + _FRAME.size : start + length]
        yield _Frame(
            is_commit=size_after_commit != 0,
            salts=(salt1, salt2),
            checksum=(sum1, sum2),
            summed=content[start : start + 8] + page,
        )


def _continued(checksum: tuple[int, int], summed: bytes, order: str) -> tuple[int, int]:
    first, second = checksum
    words = struct.unpack(f"{order}{len(summed) // 4}I", summed)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
