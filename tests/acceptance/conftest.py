"""A daemon and a code directory for every test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.live_daemon import Daemon, processes_of

TRIALS = Path(__file__).with_name("trials")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Started; ended with everything it started."""
    data = tmp_path / "data"
    data.mkdir()
    daemon = Daemon(data)
    daemon.start()
    yield daemon
    if daemon.process is not None and daemon.process.poll() is None:
        with contextlib.suppress(Exception):
            daemon.call("POST", "/experiments/stop")
        daemon.terminate()
    for process in processes_of(str(data)):
        with contextlib.suppress(psutil.Error):
            process.kill()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A code directory with the trials of this folder."""
    folder = tmp_path / "code"
    folder.mkdir()
    for source in TRIALS.glob("*.py"):
        (folder / source.name).write_bytes(source.read_bytes())
    return folder
