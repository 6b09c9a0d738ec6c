"""Outboxes that cannot be listed or read for a moment, or that an old listing lacks: no result is lost unsaid."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from trial_runner import protocol
from trial_runner.outboxes import Outboxes
from trial_runner.wire import foreign_files, outbox_files

pytestmark = pytest.mark.unit

_LINE = '{"type": "final", "value": 1}'
_OTHER = f"{protocol.OUTBOX_FOLDER}/other.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / protocol.OUTBOX_FOLDER).mkdir()
    (tmp_path / protocol.MAIN_OUTBOX).write_text(f"{_LINE}\n")
    return tmp_path


def _read(folder: Path, *, is_all: bool) -> list[tuple[str, list[str]]]:
    said: list[str] = []
    return [(chunk.outbox, chunk.lines) for chunk in Outboxes(str(folder), said.append).chunks(is_all)]


def _fail(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EIO, "Input/output error")


_ALL_READ = [(protocol.MAIN_OUTBOX, [_LINE])]
_NOT_READ = (protocol.NOT_READ_OUTBOX, [protocol.NOT_READ])
_GONE = (protocol.NOT_READ_OUTBOX, [protocol.GONE])


def test_folder_that_cannot_be_listed_is_read_by_name_and_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_files, "_names", _fail)
    assert _read(folder, is_all=True) == [*_ALL_READ, _NOT_READ]


def test_outbox_that_cannot_be_read_at_the_end_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_files, "open_file", _fail)
    assert _read(folder, is_all=True) == [_NOT_READ]
    assert _read(folder, is_all=False) == [], "it is read at the next look"


def test_folder_of_an_attempt_that_cannot_be_opened_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trial_runner.outboxes.OpenFolder", _fail)
    assert _read(folder, is_all=True) == [_NOT_READ]


def test_failure_that_has_passed_is_not_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outboxes = Outboxes(str(folder), lambda _: None)
    with monkeypatch.context() as broken:
        broken.setattr(foreign_files, "open_file", _fail)
        assert [*outboxes.chunks(False)] == []
    assert [chunk.outbox for chunk in outboxes.chunks(True)] == [protocol.MAIN_OUTBOX]


def test_folder_missing_at_the_end_is_said_and_before_it_is_not(folder: Path, tmp_path: Path) -> None:
    assert _read(tmp_path / "gone", is_all=True) == [_GONE]
    assert _read(tmp_path / "gone", is_all=False) == []
    shutil.rmtree(folder / protocol.OUTBOX_FOLDER)
    assert _read(folder, is_all=True) == [_GONE]
    (folder / protocol.OUTBOX_FOLDER).symlink_to("/")
    assert _read(folder, is_all=True) == [_GONE]


@pytest.mark.parametrize("name", [protocol.MAIN_OUTBOX, _OTHER, protocol.METRICS_FILE])
def test_outbox_removed_after_it_was_read_is_said(folder: Path, name: str) -> None:
    (folder / protocol.MAIN_OUTBOX).unlink()
    outboxes = Outboxes(str(folder), lambda _: None)
    outboxes.rewind({name: 10, "outbox/empty.jsonl": 0})
    assert [(chunk.outbox, chunk.lines) for chunk in outboxes.chunks(True)] == [_GONE]
    assert name in outboxes.gone()
    assert list(outboxes.chunks(True)) == [], "once"


def test_replaced_outbox_removed_after_it_was_read_is_said(folder: Path) -> None:
    outboxes = Outboxes(str(folder), lambda _: None)
    outboxes.rewind({_OTHER: 10, f"{_OTHER}/2": 5})
    assert [chunk.lines for chunk in outboxes.chunks(True)] == [[_LINE], [protocol.GONE]]
    outboxes.rewind({protocol.MAIN_OUTBOX: 100, f"{protocol.MAIN_OUTBOX}/2": len(_LINE) + 1})
    assert list(outboxes.chunks(True)) == [], "its file is there"


def test_attempt_without_a_report_is_not_said(tmp_path: Path) -> None:
    (tmp_path / protocol.OUTBOX_FOLDER).mkdir()
    assert _read(tmp_path, is_all=True) == []
    assert Outboxes(str(tmp_path), lambda _: None).gone() == ""


def test_old_listing_hides_no_known_outbox(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Network storage shows a folder as it was for a while, though its files can be opened by name."""
    (folder / _OTHER).touch()
    monkeypatch.setattr(foreign_files, "_names", lambda *_: ([], 0))
    found = outbox_files.present(str(folder), [_OTHER, f"{protocol.OUTBOX_FOLDER}/none.jsonl", "../secret"])
    assert (found.names, found.is_complete) == ([protocol.MAIN_OUTBOX, _OTHER], True)
    os.unlink(folder / _OTHER)
    assert outbox_files.present(str(folder), [_OTHER]).names == [protocol.MAIN_OUTBOX]
