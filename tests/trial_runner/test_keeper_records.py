"""Cutting an outbox's bytes into records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trial_runner.wire.outbox_files import cut_first, cut_frames, cut_lines

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("data", "is_all", "texts", "length"),
    [
        (b"", False, [], 0),
        (b"1", False, [], 0),
        (b"1\n", False, ["1"], 2),
        (b"1\n\n2\n3", False, ["1", "", "2"], 5),
        (b"1\n2", True, ["1", "2"], 3),
        (b'1\n{"a":', True, ["1"], 2),
        (b"1\n", True, ["1"], 2),
        (b"\xff\n", False, ["\ufffd"], 2),
    ],
)
def test_lines(data: bytes, is_all: bool, texts: list[str], length: int) -> None:
    records = cut_lines(data, is_all)
    assert (records.texts, records.length, records.skipped) == (texts, length, 0)


def frame(text: str) -> bytes:
    payload = text.encode() + b"\n"
    return b"ME%06d%s" % (len(payload), payload)


@pytest.mark.parametrize(
    ("data", "is_all", "texts", "rest", "skipped"),
    [
        (frame("a") + frame("b"), False, ["a", "b"], b"", 0),
        (frame("a") + frame("b")[:-1], False, ["a"], frame("b")[:-1], 0),
        (frame("a") + b"ME00", False, ["a"], b"ME00", 0),
        (b"xx" + frame("a"), False, ["a"], b"", 2),
        (b"garbage", False, [], b"", 7),
        (b"garbageM", False, [], b"M", 7),
        (b"ME000009torn" + frame("whole"), False, ["whole"], b"", 12),
        (b"ME000099torn" + frame("whole"), True, ["whole"], b"", 12),
        (b"ME000099torn" + frame("whole"), False, [], b"ME000099torn" + frame("whole"), 0),
        (b"ME000099torn", True, [], b"", 12),
        (b"ME0000" + frame("whole"), False, ["whole"], b"", 6),
    ],
)
def test_frames(data: bytes, is_all: bool, texts: list[str], rest: bytes, skipped: int) -> None:
    records = cut_frames(data, is_all)
    assert (records.texts, data[records.length :], records.skipped) == (texts, rest, skipped)


@given(st.lists(st.text(max_size=20)), st.data())
def test_frames_cut_anywhere_come_out_whole(texts: list[str], data: st.DataObject) -> None:
    """However a file grows, each record comes once and nothing counts as garbage."""
    written = b"".join(frame(text) for text in texts)
    cut = data.draw(st.integers(0, len(written)))
    first = cut_frames(written[:cut], is_all=False)
    second = cut_frames(written[first.length :], is_all=True)
    assert first.texts + second.texts == texts
    assert first.length + second.length == len(written)
    assert first.skipped + second.skipped == 0


@given(st.binary(max_size=60), st.booleans())
def test_no_bytes_confuse_the_cutting_of_frames(data: bytes, is_all: bool) -> None:
    records = cut_frames(data, is_all)
    assert 0 <= records.skipped <= records.length <= len(data)
    assert cut_frames(data[records.length :], is_all).texts == []


def test_the_first_record_alone_is_cut_from_a_long_stretch() -> None:
    lines = b"x" * 10 + b"\n" + b"y\n"
    assert cut_first(cut_lines, lines, cut_lines(lines, False)) == (["x" * 10], 11, 0)
    frames = frame("a\nb") + frame("c")
    assert cut_first(cut_frames, frames, cut_frames(frames, False)) == (["a\nb"], len(frame("a\nb")), 0)
    last = b'"no newline"'
    assert cut_first(cut_lines, last, cut_lines(last, True)) == (['"no newline"'], len(last), 0)
