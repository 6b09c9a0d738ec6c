"""A call that waits for a daemon that does not answer says so."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from nni_manager.client import silence
from nni_manager.client.address import Address
from nni_manager.client.manager_client import ManagerClient

pytestmark = pytest.mark.unit


@contextmanager
def server(answer: Callable[[bytes], object]) -> Iterator[ManagerClient]:
    """A client of a server that sends `{}` once `answer` of the request's path has returned."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(connection: socket.socket) -> None:
            with connection:
                answer(connection.recv(65536).split()[1])
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        def accept() -> None:
            while True:
                try:
                    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield ManagerClient(Address(port=listener.getsockname()[1]))
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "SILENT_S", 0.05)
    monkeypatch.setattr(silence, "PROBE_S", 0.05)


def test_silent_daemon_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    is_awake = threading.Event()
    with server(lambda path: is_awake.wait(10)) as client:
        threading.Timer(0.5, is_awake.set).start()
        assert client.experiment("abc") == {}
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Waiting for the daemon at ") and "does not answer" in line


def test_daemon_at_work_on_the_call_is_not_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "PROBE_S", 10.0)  # a busy machine answers late, too
    with server(lambda path: time.sleep(0 if path.endswith(b"/daemon") else 0.5)) as client:
        assert json.dumps(client.stop("abc")) == "{}"
    assert capsys.readouterr().err == ""
