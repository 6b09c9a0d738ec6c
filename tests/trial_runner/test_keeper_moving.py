"""What one machine sends of a checkpoint is what the other has, or nothing changes there."""

import io
import json
import os
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from trial_runner.keeper import moving

pytestmark = [pytest.mark.unit, pytest.mark.timeout(20)]


def _sent(folder: Path, most_bytes: int = 1 << 30) -> "tuple[dict[str, object], bytes]":
    sink = io.BytesIO()
    moving.send(str(folder), most_bytes, sink)
    answer, _, archive = sink.getvalue().partition(b"\n")
    return json.loads(answer), archive


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "sent"
    (folder / "epochs" / "1").mkdir(parents=True)
    (folder / "epochs" / "1" / "weights").write_bytes(os.urandom(300_000))
    (folder / ".state").write_text("hidden")
    (folder / "empty").mkdir()
    (folder / "run").write_text("#!/bin/sh")
    (folder / "run").chmod(0o755)
    (folder / "latest").symlink_to("epochs/1")
    return folder


def _names(folder: Path) -> "dict[str, object]":
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in folder.rglob("*")
    }


def test_received_folder_replaces_existing_one(folder: Path, tmp_path: Path) -> None:
    there = tmp_path / "machine" / "trials" / "aaaaa-checkpoint"
    there.mkdir(parents=True)
    (there / "older").touch()
    answer, archive = _sent(folder)
    assert answer == {"holds": True, "bytes": 300_000 + len("hidden#!/bin/sh"), "is_sent": True}
    assert moving.receive(str(there), io.BytesIO(archive)) == ""
    assert _names(there) == _names(folder) and os.access(there / "run", os.X_OK)
    assert [path.name for path in there.parent.iterdir()] == [there.name]


def test_truncated_archive_changes_nothing(folder: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "older").touch()
    _, archive = _sent(folder)
    for length in range(0, len(archive.rstrip(b"\0")) - 512, 512 * 37):
        assert "there: " in moving.receive(str(there), io.BytesIO(archive[:length]))
        assert list(_names(there)) == ["older"] and not there.with_name("there.arriving").exists()


def test_oversized_or_missing_checkpoint_is_not_sent(folder: Path, tmp_path: Path) -> None:
    assert _sent(folder, most_bytes=1000) == ({"holds": True, "bytes": 300_015, "is_sent": False}, b"")
    assert _sent(tmp_path / "none") == ({"holds": False, "bytes": 0, "is_sent": False}, b"")


def test_empty_folder_and_partial_copy_are_not_checkpoints(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (folder / ".nni-copying").touch()
    for none in (folder, tmp_path / "empty"):
        assert _sent(none) == ({"holds": False, "bytes": 0, "is_sent": False}, b"")


class _Interrupted(io.BytesIO):
    """An archive that is interrupted once by something else."""

    def __init__(self, archive: bytes, meanwhile: "Callable[[], None]") -> None:
        super().__init__(archive)
        self._middle, self._meanwhile = len(archive) // 2, meanwhile

    def read(self, size: "int | None" = -1) -> bytes:
        if self.tell() > self._middle and self._meanwhile:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return super().read(size)


def test_two_that_arrive_at_a_time_do_not_disturb_each_other(folder: Path, tmp_path: Path) -> None:
    """What comes later is cut: it is not half of what is there in the end."""
    there = tmp_path / "machine" / "aaaaa-checkpoint"
    _, archive = _sent(folder)
    reader, writer = os.pipe()
    answers: list[str] = []

    def receive_the_later_one() -> None:
        with open(reader, "rb") as source:
            answers.append(moving.receive(str(there), source))

    later = threading.Thread(target=receive_the_later_one)

    def begin_the_later_one() -> None:
        later.start()
        os.write(writer, archive[:200_000])  # more than a pipe holds: it has begun to unpack

    assert moving.receive(str(there), _Interrupted(archive, begin_the_later_one)) == ""
    assert _names(there) == _names(folder)
    os.close(writer)
    later.join()
    assert "broke off" in answers[0] or "unexpected end" in answers[0]
    assert _names(there) == _names(folder)
    assert [path.name for path in there.parent.iterdir()] == [there.name]
    assert there.parent.stat().st_mode & 0o077 == there.stat().st_mode & 0o077 == 0


def test_leftovers_of_killed_receiver_are_removed(folder: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    left, arrives = (tmp_path / "there.arriving" / name for name in ("left", "arrives"))
    for draft in (left, arrives):
        draft.mkdir(parents=True)
        (draft / "half").touch()
    os.utime(left, (1, 1))
    assert moving.receive(str(there), io.BytesIO(_sent(folder)[1])) == ""
    assert not left.exists() and arrives.exists() and _names(there) == _names(folder)


def test_archive_cannot_write_outside_folder(tmp_path: Path) -> None:
    for kind, name in ((tarfile.SYMTYPE, "a"), (tarfile.REGTYPE, "../outside"), (tarfile.LNKTYPE, "b")):
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w|") as archive:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/"
            archive.addfile(member)
            if kind == tarfile.SYMTYPE:
                archive.addfile(tarfile.TarInfo("a/through"))
            archive.addfile(tarfile.TarInfo(".nni-all-sent"))
        there = tmp_path / f"there-{name.strip('./')}"
        assert moving.receive(str(there), io.BytesIO(made.getvalue()))
        assert not there.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == []
