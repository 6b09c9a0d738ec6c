"""Logs of jobs elsewhere: all of them up to a limit, then beginning and end, and senders go on where they were."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nni_manager.shared_storage import kept_logs, runner_folder
from nni_manager.shared_storage.kept_logs import HEAD_BYTES
from trial_runner import protocol

pytestmark = pytest.mark.unit

MOST = 16 * HEAD_BYTES
PIECE = protocol.MAX_LOG_POST


def _send(root: Path, data: bytes, name: str = "attempt/stdout", most: int = MOST, start: int = 0) -> int:
    """As a runner does, which goes on where the answer says."""
    offset = start
    while offset < len(data):
        offset = kept_logs.append(str(root), name, offset, data[offset : offset + PIECE], most)
    return offset


def _numbered(size: int) -> bytes:
    return b"".join(b"%015d\n" % number for number in range(size // 16))


def test_a_log_is_kept_whole_up_to_the_limit(tmp_path: Path) -> None:
    data = _numbered(MOST)
    assert _send(tmp_path, data) == len(data)
    assert (tmp_path / "attempt/stdout").read_bytes() == data
    assert kept_logs.size(str(tmp_path), "attempt/stdout") == len(data)


@pytest.mark.parametrize("times", [2, 7, 40])
def test_long_log_keeps_its_beginning_and_end(tmp_path: Path, times: int) -> None:
    data = _numbered(times * MOST)
    assert _send(tmp_path, data) == len(data)
    kept = (tmp_path / "attempt/stdout").read_bytes()
    assert len(kept) <= MOST + PIECE and kept_logs.size(str(tmp_path), "attempt/stdout") == len(data)
    head, sentence, tail = kept[:HEAD_BYTES], *kept[HEAD_BYTES + 1 :].split(b"\n", 1)
    assert data.startswith(head) and data.endswith(tail) and len(tail) >= HEAD_BYTES
    assert b"maxLogSize" in sentence and int(sentence.split()[1]) == len(data) - len(head) - len(tail)
    assert [path.name for path in (tmp_path / "attempt").iterdir()] == ["stdout"]


def test_repeated_post_is_stored_once(tmp_path: Path) -> None:
    data = _numbered(3 * MOST)
    _send(tmp_path, data)
    before = (tmp_path / "attempt/stdout").read_bytes()
    again = kept_logs.append(str(tmp_path), "attempt/stdout", len(data) - 100, data[-100:], MOST)
    ahead = kept_logs.append(str(tmp_path), "attempt/stdout", len(data) + 7, b"later", MOST)
    assert again == ahead == len(data) and (tmp_path / "attempt/stdout").read_bytes() == before


def test_all_logs_of_an_attempt_have_one_limit(tmp_path: Path) -> None:
    """Each process of a job has three, and a token is good for as many as 64 processes."""
    data = _numbered(MOST)
    for source in range(20):
        for name in protocol.LOG_FILES:
            _send(tmp_path, data, f"attempt/{name}-{source}")
    sizes = [path.stat().st_size for path in (tmp_path / "attempt").iterdir()]
    assert len(sizes) == 60 and sum(sizes) <= MOST + 60 * 5 * HEAD_BYTES
    _send(tmp_path, data, "other/stdout")
    assert (tmp_path / "other/stdout").read_bytes() == data


def test_posts_that_cross_are_taken_in_turn(tmp_path: Path) -> None:
    data = _numbered(4 * MOST)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: _send(tmp_path, data), range(4))) == {len(data)}
    assert kept_logs.size(str(tmp_path), "attempt/stdout") == len(data)


def test_log_resembling_truncated_one_affects_only_itself(tmp_path: Path) -> None:
    """Its sentence is believed, and no more is taken of it than of any other."""
    forged = _numbered(HEAD_BYTES) + kept_logs._SENTENCE.format(10**14).encode() + _numbered(3 * MOST)
    offset = 0
    for start in range(0, len(forged), PIECE):
        offset = kept_logs.append(
            str(tmp_path), "attempt/stdout", max(start, offset), forged[start : start + PIECE], MOST
        )
    assert (tmp_path / "attempt/stdout").stat().st_size <= MOST + PIECE


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "attempt").mkdir()
    (tmp_path / "target").write_bytes(b"")
    (tmp_path / "attempt/stdout").symlink_to(tmp_path / "target")
    with pytest.raises(OSError):
        _send(tmp_path, b"x")
    assert os.stat(tmp_path / "target").st_size == 0


def test_copies_of_logs_on_shared_storage_have_the_limit(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    data = _numbered(5 * MOST)
    (source / "stdout").write_bytes(data[: len(data) // 2])
    assert runner_folder.copy_logs(source, target, MOST).size == len(data) // 2
    (source / "stdout").write_bytes(data)
    assert runner_folder.copy_logs(source, target, MOST).size == len(data) - len(data) // 2
    assert runner_folder.copy_logs(source, target, MOST).size == 0
    kept = (target / "stdout").read_bytes()
    assert len(kept) <= 2 * MOST and data.startswith(kept[:HEAD_BYTES]) and data.endswith(kept[-HEAD_BYTES:])
    assert runner_folder.missing_logs(target, {"stdout": len(data)}) == {}
    assert runner_folder.missing_logs(target, {"stdout": len(data) + 1}) == {"stdout": (len(data), len(data) + 1)}
