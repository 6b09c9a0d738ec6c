"""A daemon and a code directory for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_daemon import Daemon, running_daemon

TRIALS = Path(__file__).with_name("trials")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Started; ended with everything it started."""
    with running_daemon(tmp_path) as daemon:
        yield daemon


@pytest.fixture
def listening(daemon: Daemon) -> Daemon:
    """With a service and, once it is needed, a trial listener."""
    daemon.terminate()
    return daemon.start("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A code directory with the trials of this folder."""
    folder = tmp_path / "code"
    folder.mkdir()
    for source in TRIALS.glob("*.py"):
        (folder / source.name).write_bytes(source.read_bytes())
    return folder
