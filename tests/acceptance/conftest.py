"""Daemons, code directories, clusters and machines for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.kubernetes_cluster import FakeCluster, fake_cluster
from tests.live_daemon import LISTENING, Daemon, end_all, running_daemon
from tests.platforms.remote.ssh_machines import RealMachine

TRIALS = Path(__file__).with_name("trials")


@pytest.fixture
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemon]:
    """A started daemon; ended with everything it started. It listens if a test requests `listening`."""
    with running_daemon(tmp_path, *(LISTENING if "listening" in request.fixturenames else ())) as daemon:
        yield daemon


@pytest.fixture
def listening(daemon: Daemon) -> Daemon:
    """A daemon with a service and, when needed, a trial listener."""
    return daemon


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon for all tests of a module whose experiments are independent of others."""
    folder = tmp_path_factory.mktemp("shared")
    with running_daemon(folder, *LISTENING) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeCluster]:
    """A fake cluster for all tests of a module."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "mounted").mkdir()
    with fake_cluster(folder, folder / "mounted", "--nodes", "2") as cluster:
        yield cluster


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A code directory with the trials of this folder."""
    folder = tmp_path / "code"
    folder.mkdir()
    for source in TRIALS.glob("*.py"):
        (folder / source.name).write_bytes(source.read_bytes())
    return folder


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[RealMachine]]:
    """Two machines with different names; for sshd both are this machine."""
    with running_machine(tmp_path / "one") as one, running_machine(tmp_path / "two") as two:
        yield [one, two]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[RealMachine]:
    with running_machine(tmp_path / "machine") as machine:
        yield machine


@contextmanager
def running_machine(folder: Path) -> Iterator[RealMachine]:
    """A machine with a real sshd; everything that it runs ends with it."""
    machine = RealMachine(folder)
    asyncio.run(machine.start())
    yield machine
    asyncio.run(machine.stop())
    end_all(str(machine.home))
