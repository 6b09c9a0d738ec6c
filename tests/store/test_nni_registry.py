"""NNI's list of experiments: foreign entries are kept, and readers never see half a file."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nni_manager.store.nni import nni_registry
from nni_manager.store.nni.nni_registry import Entries, RegistryBusy

pytestmark = pytest.mark.unit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nni-experiments" / ".experiment"


def putting(id: str, **fields: object) -> Callable[[Entries], None]:
    def change(entries: Entries) -> None:
        entries[id] = {"id": id, **fields}

    return change


def lock_of(path: Path, process: object, *, age_s: float = 0) -> Path:
    path.parent.mkdir(exist_ok=True)
    lock = path.with_name(f"{path.name}.lock.{process}")
    lock.touch()
    os.utime(lock, (time.time() - age_s,) * 2)
    return lock


def test_registry_is_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert nni_registry.default_path() == tmp_path / "nni-experiments" / ".experiment"


def test_registry_is_created_and_changed(path: Path) -> None:
    assert nni_registry.read(path) == {}
    assert nni_registry.update(path, putting("abc", port=8080))
    assert nni_registry.update(path, putting("def", port=None))
    assert json.loads(path.read_text()) == {"abc": {"id": "abc", "port": 8080}, "def": {"id": "def", "port": None}}
    assert path.read_text().startswith('{\n    "abc": {\n        "id"'), "as NNI writes it"
    assert sorted(entry.name for entry in path.parent.iterdir()) == [".experiment"], "no lock, no draft is left"


def test_unchanged_registry_is_not_written(path: Path) -> None:
    nni_registry.update(path, putting("abc"))
    before = path.stat()
    assert not nni_registry.update(path, putting("abc"))
    assert path.stat() == before


def test_foreign_entries_are_unchanged(path: Path) -> None:
    path.parent.mkdir()
    others = {"old": ["a", "list"], "strange": 7, "theirs": {"id": "theirs", "new key": {"x": [1]}}}
    path.write_text(json.dumps(others))
    nni_registry.update(path, putting("abc"))
    assert nni_registry.read(path) == {**others, "abc": {"id": "abc"}}


@pytest.mark.parametrize("text", ["", "{", '{"theirs": {"id": "th', "[]", "null", "\x00"])
def test_a_file_that_is_not_whole_is_left_alone(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(RegistryBusy):
        nni_registry.update(path, putting("abc"))
    assert path.read_text() == text
    assert [entry.name for entry in path.parent.iterdir()] == [".experiment"]
    path.write_text('{"theirs": {}}')
    assert nni_registry.update(path, putting("abc"))
    assert nni_registry.read(path).keys() == {"theirs", "abc"}


def test_non_text_registry_is_unchanged(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RegistryBusy, match="is not UTF-8 text; repair it, or move it away"):
        nni_registry.update(path, putting("abc"))


def test_a_file_that_has_been_empty_for_a_while_holds_nothing(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    os.utime(path, (time.time() - 60,) * 2)
    assert nni_registry.update(path, putting("abc"))
    assert nni_registry.read(path) == {"abc": {"id": "abc"}}


def test_another_s_lock_is_honoured(path: Path) -> None:
    lock = lock_of(path, 1)
    with pytest.raises(RegistryBusy, match=r"\.experiment\.lock\.1 is there"):
        nni_registry.update(path, putting("abc"))
    assert lock.exists() and not path.exists()
    lock.unlink()
    assert nni_registry.update(path, putting("abc"))


@pytest.mark.parametrize("process_of", [lambda: 1, os.getpid], ids=["of another", "of ours"])
def test_stale_lock_is_ignored(path: Path, process_of: Callable[[], int]) -> None:
    lock_of(path, process_of(), age_s=60)
    assert nni_registry.update(path, putting("abc"))


def test_our_own_lock_is_there_while_we_write(path: Path) -> None:
    def change(entries: Entries) -> None:
        assert path.with_name(f".experiment.lock.{os.getpid()}").exists()
        entries["abc"] = {}

    assert nni_registry.update(path, change)


def test_a_change_that_fails_gives_the_lock_back(path: Path) -> None:
    nni_registry.update(path, putting("abc"))
    with pytest.raises(KeyError):
        nni_registry.update(path, lambda entries: entries.pop("missing"))
    assert [entry.name for entry in path.parent.iterdir()] == [".experiment"]


def test_mode_and_link_stay(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere.json"
    real.write_text("{}")
    real.chmod(0o640)
    path.parent.mkdir()
    path.symlink_to(real)
    nni_registry.update(path, putting("abc"))
    assert path.is_symlink() and json.loads(real.read_text()) == {"abc": {"id": "abc"}}
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_readers_see_the_old_file_or_the_new_one(path: Path) -> None:
    nni_registry.update(path, putting("first"))
    over = threading.Event()
    seen: list[int] = []

    def look() -> None:
        while not over.is_set():
            seen.append(len(json.loads(path.read_text())))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for number in range(200):
            nni_registry.update(path, putting(f"id{number}", text="x" * 1000))
    finally:
        over.set()
        reader.join()
    assert seen == sorted(seen) and seen[-1] <= 201
