"""Server-sent events as they come over the line."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from nni_manager.client.address import Address
from nni_manager.client.connection import Unreachable, read_events
from nni_manager.client.manager_client import ManagerClient

pytestmark = pytest.mark.unit


def test_events_are_put_together_and_comments_left_out() -> None:
    text = b':\n\nevent: state\ndata: {"a":\ndata: 1}\n\n: still here\n\ndata:{}\r\n\r\n\n'
    assert list(read_events(text.splitlines(keepends=True))) == [{"a": 1}, {}]


def test_an_unfinished_event_is_left_out() -> None:
    assert list(read_events([b"data: 1\n"])) == []


@pytest.mark.parametrize("last", [b"0\r\n\r\n", b"", b"5\r\nda"])
def test_stream_end_is_not_a_dead_daemon(last: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as daemon:
        daemon.submit(_answer, server, head + b"e\r\ndata: {}\n\ndata\r\n6\r\n: {}\n\n\r\n" + last)
        events = ManagerClient(Address(port=server.getsockname()[1])).events("exp1")
        assert [next(events), next(events)] == [{}, {}]
        with pytest.raises(StopIteration) if last.startswith(b"0") else pytest.raises(Unreachable):
            next(events)


def test_stream_that_is_not_used_any_more_is_closed() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as daemon:
        end = daemon.submit(_answer, server, head + b"b\r\ndata: {}\n\n\n\r\n", b"")
        for event in ManagerClient(Address(port=server.getsockname()[1])).events("exp1"):
            assert event == {}
            break
        assert end.result(timeout=10) is None


def _answer(server: socket.socket, text: bytes, then: bytes | None = None) -> None:
    """Answers a request; `then`: received after it."""
    connection, _ = server.accept()
    with connection:
        connection.settimeout(10)
        connection.recv(65536)
        connection.sendall(text)
        assert then is None or connection.recv(1) == then
