"""Outboxes that are read from a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nni_manager.platform_kit import outbox_file
from trial_runner import protocol

pytestmark = pytest.mark.unit


def test_a_line_that_is_too_long_is_named_with_the_limit_once_it_is_whole(tmp_path: Path) -> None:
    (tmp_path / protocol.OUTBOX_FOLDER).mkdir()
    outbox = tmp_path / protocol.MAIN_OUTBOX
    outbox.write_bytes(b"x" * 20_000_000)
    assert outbox_file.next_stretch(tmp_path, protocol.MAIN_OUTBOX, 0, is_all=False) is None
    with outbox.open("ab") as file:
        file.write(b"\ny\n")
    found = outbox_file.next_stretch(tmp_path, protocol.MAIN_OUTBOX, 0, is_all=False)
    assert found is not None and found.end == 20_000_001
    (line,) = found.lines
    assert json.loads(line) == {"type": protocol.TOO_LONG, "bytes": 20_000_001, "limit": protocol.MAX_LINE}
    rest = outbox_file.next_stretch(tmp_path, protocol.MAIN_OUTBOX, found.end, is_all=False)
    assert rest is not None and rest.lines == ("y",)


def test_or_nobody_writes_on_at_it(tmp_path: Path) -> None:
    (tmp_path / protocol.OUTBOX_FOLDER).mkdir()
    (tmp_path / protocol.MAIN_OUTBOX).write_bytes(b"x" * 9_000_000)
    found = outbox_file.next_stretch(tmp_path, protocol.MAIN_OUTBOX, 0, is_all=True)
    assert found is not None and (found.end, len(found.lines)) == (9_000_000, 1)
