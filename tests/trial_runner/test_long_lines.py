"""A line over the limit: passed over whole, named once, whichever way and in how many pieces it is read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trial_runner import protocol
from trial_runner.wire.outbox_files import read_records

pytestmark = pytest.mark.unit

MAIN, SIZE = protocol.MAIN_OUTBOX, 256 * 1024


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def texts(path: Path, start: int = 0, *, is_all: bool = False) -> tuple[list[str], int]:
    """(all that is complete, where it ends)"""
    found: list[str] = []
    with opened(path) as descriptor:
        while (records := read_records(descriptor, MAIN, start, is_all, SIZE)).length:
            found += records.texts
            start += records.length
    return found, start


@pytest.mark.parametrize("more", [1, 2, SIZE, 5 * protocol.MAX_RECORD])
def test_overlong_line_is_reported_in_place(tmp_path: Path, more: int) -> None:
    path = tmp_path / "outbox"
    path.write_bytes(b"1\n" + b"x" * (protocol.MAX_RECORD + more) + b"\n2\n")
    assert texts(path) == (["1", protocol.TOO_LONG, "2"], path.stat().st_size)


def test_longest_allowed_line_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "outbox"
    path.write_bytes(b"x" * protocol.MAX_RECORD + b"\n2\n")
    found, _ = texts(path)
    assert [len(text) for text in found] == [protocol.MAX_RECORD, 1]


def test_line_growing_over_limit_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "outbox"
    path.write_bytes(b"x" * (protocol.MAX_RECORD - 1))
    found, start = texts(path)
    assert (found, start) == ([], 0)
    for _ in range(3):
        with path.open("ab") as file:
            file.write(b"x" * 100_000)
        more, start = texts(path, start)
        found += more
    with path.open("ab") as file:
        file.write(b'x"}\n2\n')
    more, start = texts(path, start)
    assert ([*found, *more], start) == ([protocol.TOO_LONG, "2"], path.stat().st_size)


def test_line_after_unterminated_line_is_own_record(tmp_path: Path) -> None:
    path = tmp_path / "outbox"
    path.write_bytes(b"1\n" * protocol.MAX_RECORD + b"2")
    with opened(path) as descriptor:
        end = 2 * protocol.MAX_RECORD
        assert read_records(descriptor, MAIN, end, True, SIZE).texts == ["2"]
        with path.open("ab") as file:
            file.write(b"3\n")
        assert read_records(descriptor, MAIN, end + 1, False, SIZE).texts == ["3"]
