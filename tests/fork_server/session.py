"""A pytest plug-in: a server for all tests of this process, from the first start that can be a fork.

Where several processes share the tests, theirs are forks of one more server, which imports everything once.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from threading import Lock

import pytest

from tests import left_children
from tests.fork_server import popen
from tests.fork_server.order import SERVER

_ROOT = Path(__file__).parents[2]
#: Orders at the same time: a worker has a few threads that start something.
_WAITING = 64
_SOCKET = "socket"


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Before the workers are forked, and until they have ended."""
    if not session.config.option.workers:
        return (yield)
    _first.open()
    _first.start()
    try:
        return (yield)
    finally:
        _first.close()


@pytest.fixture(scope="session", autouse=True)
def fork_server(no_child_of_shared_fixtures_is_left: None) -> Iterator[None]:
    """It ends before that looks for what is left."""
    _server.open()
    yield
    _server.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """For the fixtures of its module, too."""
    popen.use(None if item.get_closest_marker("true_start") else _server)
    try:
        return (yield)
    finally:
        popen.use(None)


class _ForkServer:
    """Its process, and the folder with its socket."""

    _process: subprocess.Popen[bytes] | None = None

    def __init__(self) -> None:
        self.environment = dict(os.environ)  # when pytest begins: what a test does to it is not the server's

    def open(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="nni-fork-")

    @property
    def path(self) -> str:
        """Orders wait there until it has imported everything."""
        return f"{self._folder}/{_SOCKET}"

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self, kind: type[subprocess.Popen[bytes]] = subprocess.Popen) -> int:
        self._process = _started(kind, f"{self._folder}/{_SOCKET}", self.environment)
        return self._process.pid

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None
        shutil.rmtree(self._folder)


class _TestsServer(_ForkServer):
    """Of this process; what it forks are children of the tests."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()

    @property
    def path(self) -> str:
        with self._lock:
            if not self.is_running:
                left_children.share(self.start(_ForkedServer if _first.is_running else subprocess.Popen))
        return super().path

    def end(self) -> None:
        try:
            if self._process is not None:
                left_children.end_sharing(self._process.pid)
        finally:
            self.close()


_first, _server = _ForkServer(), _TestsServer()


class _ForkedServer(popen.Popen):
    _server = _first


def _started(kind: type[subprocess.Popen[bytes]], path: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(_WAITING)
        number = listener.fileno()
        return kind(
            [sys.executable, "-m", SERVER, str(number), path],
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(number,),
            start_new_session=True,
        )
