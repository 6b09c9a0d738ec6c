"""`nnictl log trial`: folders, text, the last lines, and text that still grows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result
from fake_manager import FakeManager, state, trial

from nni_manager.cli.trial.log import follow_logs, last_lines
from nni_manager.client.manager_client import LogPart

pytestmark = pytest.mark.unit

Run = Callable[..., Result]


@pytest.fixture
def filled(manager: FakeManager) -> FakeManager:
    manager.add(state("abc"))
    manager.trials_of["abc"] = [trial("aaaaa", 0), trial("bbbbb", 1)]
    manager.logs["aaaaa", "trial.log"] = b"log\n"
    manager.logs["aaaaa", "stdout"] = b"one\ntwo\nthree\n"
    manager.logs["aaaaa", "stderr"] = b"bad \xff\n"
    return manager


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], b"aaaaa  /data/trials/aaaaa\nbbbbb  /data/trials/bbbbb\n"),
        (["-T", "aaaaa"], b"/data/trials/aaaaa\nlog\none\ntwo\nthree\nstderr:\nbad \xff\n"),
        (["-T", "0", "--follow"], b"/data/trials/aaaaa\nlog\none\ntwo\nthree\nstderr:\nbad \xff\n"),
        (["-T", "aa", "--tail", "1"], b"/data/trials/aaaaa\nlog\nthree\nstderr:\nbad \xff\n"),
        (["-T", "bbbbb"], b"/data/trials/bbbbb\n"),
        (["-T", "aaaaa", "--stdout"], b"one\ntwo\nthree\n"),
        (["-T", "aaaaa", "--stdout", "--tail", "2"], b"two\nthree\n"),
        (["-T", "aaaaa", "--stdout", "--tail", "99"], b"one\ntwo\nthree\n"),
        (["-T", "aaaaa", "--stdout", "--follow"], b"one\ntwo\nthree\n"),
        (["-T", "aaaaa", "--stdout", "--follow", "--tail", "1"], b"three\n"),
        (["-T", "aaaaa", "--stderr"], b"bad \xff\n"),
    ],
)
def test_log_trial(nnictl: Run, filled: FakeManager, words: list[str], expected: bytes) -> None:
    result = nnictl("log", "trial", "abc", *words)
    assert result.exit_code == 0, result.output
    assert result.stdout_bytes == expected


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_gets_no_escape_codes(
    nnictl: Run, filled: FakeManager, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    text = "\x1b]0;title\x07 \x1b[31mred\x1b[0m\ttab\r\n\u009b2J ünï\n".encode()
    filled.logs["aaaaa", "stdout"] = text
    monkeypatch.setattr("nni_manager.cli.trial.log.is_terminal", lambda: is_terminal)
    shown = nnictl("log", "trial", "abc", "-T", "aaaaa", "--stdout").stdout_bytes
    seen = "^[]0;title^G ^[[31mred^[[0m\ttab\r\n?2J ünï\n".encode()
    assert shown == (seen if is_terminal else text)


def test_an_unknown_trial_is_named(nnictl: Run, filled: FakeManager) -> None:
    result = nnictl("log", "trial", "-T", "zzzzz")
    assert (result.exit_code, result.stderr) == (
        1,
        "nnictl: cannot find trial zzzzz; `nnictl trial ls abc` shows every trial\n",
    )


def test_large_logs_come_in_parts(nnictl: Run, filled: FakeManager) -> None:
    text = b"".join(b"line %d\n" % number for number in range(400_000))
    filled.logs["aaaaa", "stdout"] = text
    assert nnictl("log", "trial", "-T", "aaaaa", "--stdout").stdout_bytes == text
    tail = nnictl("log", "trial", "-T", "aaaaa", "--stdout", "--tail", "30000").stdout_bytes
    assert tail == b"".join(b"line %d\n" % number for number in range(370_000, 400_000))


def test_follow_continues_until_trial_end() -> None:
    text, ends = bytearray(b"a\n"), iter([False, False, False, True, True])
    more = iter([b"b\n", b"c\n"])

    def read(offset: int) -> LogPart:
        return LogPart(data=bytes(text[offset:]), offset=offset, size=len(text))

    def pause() -> None:
        text.extend(next(more))

    assert b"".join(follow_logs([(read, 0)], lambda: next(ends), pause)) == b"a\nb\n"


def test_follow_misses_nothing_written_before_the_end() -> None:
    text = bytearray()

    def ended() -> bool:
        text.extend(b"last\n") if not text else None
        return True

    def read(offset: int) -> LogPart:
        return LogPart(data=bytes(text[offset:]), offset=offset, size=len(text))

    assert b"".join(follow_logs([(read, 0)], ended, lambda: None)) == b"last\n"


@pytest.mark.parametrize(
    ("data", "lines", "expected"),
    [
        (b"", 3, b""),
        (b"no newline", 1, b"no newline"),
        (b"a\nb", 1, b"b"),
        (b"a\n" * 9000, 5000, b"a\n" * 5000),
    ],
)
def test_last_lines(data: bytes, lines: int, expected: bytes) -> None:
    def read(offset: int) -> LogPart:
        start = max(len(data) + offset, 0)
        return LogPart(data=data[start:], offset=start, size=len(data))

    assert last_lines(read, lines) == (expected, len(data))
