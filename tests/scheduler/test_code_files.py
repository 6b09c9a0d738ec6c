"""The files that count as code, and those that trials write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nni_manager.scheduler.turns import code_files
from nni_manager.scheduler.turns.code_files import MOST_BYTES, MOST_FILES, Place, first_look, look_again

pytestmark = pytest.mark.unit


def place(folder: Path, command: str = "python3 go.py") -> Place:
    return Place(directory=str(folder), command=command, leave_out=str(folder / "experiments"))


def write(folder: Path, name: str, content: str = "x", *, age_s: float = 60) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    moment = path.stat().st_mtime - age_s
    os.utime(path, (moment, moment))
    return path


def test_source_settings_and_named_files_count(tmp_path: Path) -> None:
    for name in (
        "go.py",
        "lib/net.py",
        "conf/a.yaml",
        "train",
        "other",
        "notes.txt",
        "data.csv",
        "model.pt",
        "out.log",
    ):
        write(tmp_path, name)
    assert sorted(first_look(place(tmp_path, "./train --data data.csv"))) == [
        *("conf/a.yaml", "data.csv", "go.py", "lib/net.py", "train")
    ]


def test_folders_of_others_and_ignored_files_do_not_count(tmp_path: Path) -> None:
    for name in (".git/x.py", "__pycache__/a.py", "venv/pyvenv.cfg", "venv/lib/a.py", "experiments/e/code/a.py"):
        write(tmp_path, name)
    for name in ("go.py", "results/a.json", "runs/1/copy.py", "sub/skip.py", "sub/keep.py"):
        write(tmp_path, name)
    write(tmp_path, ".nniignore", "results/\nruns\n")
    write(tmp_path, "sub/.nniignore", "skip.py\n")
    (tmp_path / "link.py").symlink_to(tmp_path / "go.py")
    (tmp_path / "large.py").write_bytes(b"x" * (MOST_BYTES + 1))
    assert sorted(first_look(place(tmp_path))) == ["go.py", "sub/keep.py"]


def test_number_of_files_is_limited(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for number in range(MOST_FILES + 20):
        (tmp_path / "deep" / f"{number}.py").touch()
    (tmp_path / "go.py").touch()
    found = first_look(place(tmp_path))
    assert len(found) == MOST_FILES and "go.py" in found


def test_only_content_counts_as_a_change(tmp_path: Path) -> None:
    path = write(tmp_path, "go.py", "one")
    known = first_look(place(tmp_path))
    assert not look_again(str(tmp_path), known).changed
    os.utime(path)
    touched = look_again(str(tmp_path), known)
    assert not touched.changed and touched.files["go.py"].mtime_ns != known["go.py"].mtime_ns
    write(tmp_path, "go.py", "two")
    found = look_again(str(tmp_path), known)
    status = path.stat()
    assert found.changed == {"go.py": (status.st_mtime_ns, status.st_ctime_ns // 1_000_000, False)}


def test_unchanged_files_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "go.py")
    known = first_look(place(tmp_path))
    monkeypatch.setattr(code_files, "_read", lambda *_: pytest.fail("it was read"))
    assert look_again(str(tmp_path), known).files == known


def test_new_files_do_not_count_by_themselves(tmp_path: Path) -> None:
    write(tmp_path, "go.py")
    known = first_look(place(tmp_path))
    for name in ("generated.py", "out/run1/config.py", "result.json", "__pycache__/go.cpython-311.pyc"):
        write(tmp_path, name)
    assert not look_again(str(tmp_path), known).changed


def test_missing_and_fresh_files_may_still_be_written(tmp_path: Path) -> None:
    write(tmp_path, "go.py")
    write(tmp_path, "conf.json")
    write(tmp_path, "util.py")
    known = first_look(place(tmp_path))
    (tmp_path / "util.py").unlink()
    write(tmp_path, "go.py", "two", age_s=0)
    write(tmp_path, "conf.json", "two", age_s=1)
    found = look_again(str(tmp_path), known)
    assert {path: one.is_fresh for path, one in found.changed.items()} == {
        **{"go.py": True, "conf.json": False, "util.py": True}
    }
    assert found.files["util.py"].digest == ""
    assert not look_again(str(tmp_path), found.files).changed
