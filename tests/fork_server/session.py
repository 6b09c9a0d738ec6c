"""A pytest plug-in: a server for all tests of this process, from the first start that can be a fork."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import pytest

from tests import left_children
from tests.fork_server import popen

_ROOT = Path(__file__).parents[2]
#: Orders at the same time: a worker has a few threads that start something.
_WAITING = 64


@pytest.fixture(scope="session", autouse=True)
def fork_server(no_child_of_shared_fixtures_is_left: None) -> Iterator[None]:
    """It ends before that looks for what is left."""
    _server.open()
    yield
    _server.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """For the fixtures of its module, too."""
    if item.get_closest_marker("true_start") is None:
        popen.use(_server)
    try:
        return (yield)
    finally:
        popen.use(None)


@contextmanager
def serving() -> Iterator[None]:
    """A server for all starts of this process, which is not pytest's."""
    _server.open()
    popen.use(_server)
    try:
        yield
    finally:
        popen.use(None)
        _server.end()


class _ForkServer:
    """Its process, and the folder with its socket."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)  # when pytest begins: what a test does to it is not the server's

    def open(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="nni-fork-")
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()

    @property
    def path(self) -> str:
        """Orders wait there until it has imported everything."""
        path = f"{self._folder}/socket"
        with self._lock:
            if self._process is None:
                self._process = _started(path, self.environment)
                left_children.share(self._process.pid)
        return path

    def end(self) -> None:
        try:
            if self._process is not None:
                left_children.end_sharing(self._process.pid)
        finally:
            if self._process is not None:
                self._process.communicate()
            shutil.rmtree(self._folder)


_server = _ForkServer()


def _started(path: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(_WAITING)
        number = listener.fileno()
        return subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server.server", str(number), path],
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(number,),
            start_new_session=True,
        )
