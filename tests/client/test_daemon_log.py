"""The file that a daemon in the background writes its output to."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from nni_manager.client import daemon

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("is_large", [False, True])
def test_large_log_is_put_aside_at_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    monkeypatch.setattr(daemon, "_LOG_BYTES", 10)
    log, aside = tmp_path / daemon.LOG_FILE, tmp_path / f"{daemon.LOG_FILE}.1"
    before = "a long text\n" if is_large else "short\n"
    log.write_text(before)
    aside.write_text("earlier\n")
    with open(os.devnull, "wb") as writer:
        assert daemon._spawn([sys.executable, "-c", "print('begins')"], tmp_path, writer.fileno()).wait() == 0
    assert aside.read_text() == (before if is_large else "earlier\n")
    assert log.read_text() == ("begins\n" if is_large else "short\nbegins\n")
