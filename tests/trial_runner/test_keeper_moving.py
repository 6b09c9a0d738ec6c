"""What one machine sends of a checkpoint is what the other has, or nothing changes there."""

import io
import json
import os
import tarfile
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


def test_all_that_is_there_takes_the_place_of_what_was(folder: Path, tmp_path: Path) -> None:
    there = tmp_path / "machine" / "trials" / "aaaaa-checkpoint"
    there.mkdir(parents=True)
    (there / "older").touch()
    answer, archive = _sent(folder)
    assert answer == {"bytes": 300_000 + len("hidden#!/bin/sh"), "is_sent": True}
    assert moving.receive(str(there), io.BytesIO(archive)) == ""
    assert _names(there) == _names(folder) and os.access(there / "run", os.X_OK)
    assert [path.name for path in there.parent.iterdir()] == [there.name]


def test_what_is_cut_anywhere_changes_nothing(folder: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "older").touch()
    _, archive = _sent(folder)
    for length in range(0, len(archive.rstrip(b"\0")) - 512, 512 * 37):
        assert "there: " in moving.receive(str(there), io.BytesIO(archive[:length]))
        assert list(_names(there)) == ["older"] and not there.with_name("there.arriving").exists()


def test_what_is_too_large_or_not_there_is_not_sent(folder: Path, tmp_path: Path) -> None:
    assert _sent(folder, most_bytes=1000) == ({"bytes": 300_015, "is_sent": False}, b"")
    assert _sent(tmp_path / "none") == ({"bytes": 0, "is_sent": False}, b"")


def test_an_archive_reaches_nothing_outside(tmp_path: Path) -> None:
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
