"""The keeper's state files: one a name, written whole, used again for other jobs."""

import os
from pathlib import Path

import pytest

from trial_runner import protocol
from trial_runner.keeper.jobs import files
from trial_runner.keeper.jobs.files import Claim, End, MainProcess, StateFiles

pytestmark = pytest.mark.unit

MAIN = MainProcess(7, 8, 9)
END = End(protocol.ENDED, 0, None, 10, "")


def claim(name: str, attempt_directory: str = "/attempt") -> Claim:
    return Claim(name, "exp1", "rttime:1", attempt_directory, "boot", 5.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


def test_a_name_is_one_job(folder: Path) -> None:
    state_files = StateFiles(str(folder))
    state_files.claim(claim("a", "/first"))
    with pytest.raises(FileExistsError):
        state_files.claim(claim("a", "/second"))
    assert [record.claim.attempt_directory for record in state_files.load()[0]] == ["/first"]


def test_reused_state_file_has_no_old_content(folder: Path) -> None:
    state_files = StateFiles(str(folder))
    state_files.claim(claim("a", "/a/path/that/is/longer/than/the/next"))
    state_files.append("a", MAIN)
    state_files.append("a", END)
    number = os.stat(folder / "a.jsonl").st_ino
    state_files.remove("a")
    assert state_files.load() == ([], [])
    state_files.claim(claim("b"))
    assert os.stat(folder / "b.jsonl").st_ino == number
    ((record,), empty) = state_files.load()
    assert (record.claim, record.main, record.end, empty) == (claim("b"), None, None, [])


def test_next_keeper_uses_spare_files(folder: Path) -> None:
    first = StateFiles(str(folder))
    for name in ("a", "b"):
        first.claim(claim(name))
    first.remove("a")
    second = StateFiles(str(folder))
    assert [record.claim.name for record in second.load()[0]] == ["b"]
    second.claim(claim("c"))
    assert sorted(os.listdir(folder)) == ["b.jsonl", "c.jsonl"]


def test_half_written_claim_is_ignored(folder: Path) -> None:
    first = StateFiles(str(folder))
    (folder / "a.jsonl.spare").write_text('{"name": "a", "own')
    assert first.load() == ([], [])
    first.claim(claim("b"))
    assert [record.claim for record in first.load()[0]] == [claim("b")]


def test_renamed_claim_with_lost_content_is_ignored(folder: Path) -> None:
    state_files = StateFiles(str(folder))
    state_files.claim(claim("a"))
    os.rename(folder / "a.jsonl", folder / "b.jsonl")
    assert state_files.load() == ([], ["b"])


def test_number_of_spare_files_is_limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MOST_SPARE", 1)
    state_files = StateFiles(str(folder))
    for name in ("a", "b"):
        state_files.claim(claim(name))
    for name in ("a", "b", "unknown"):
        state_files.remove(name)
    assert os.listdir(folder) == ["a.jsonl.spare"]


def test_a_claim_that_cannot_be_written_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state_files = StateFiles(str(folder))

    def full(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_all", full)
    with pytest.raises(OSError, match="No space"):
        state_files.claim(claim("a"))
    assert os.listdir(folder) == []
