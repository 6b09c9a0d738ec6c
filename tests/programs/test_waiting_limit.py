"""Waiting for an experiment that has a limit or is cancelled closes the stream of its states."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from nni_manager.client.address import Address
from nni_manager.client.connection import EventStream
from nni_manager.client.manager_client import ManagerClient
from nni_manager.programs import following
from nni_manager.programs.asynchronous import AsyncExperiment
from nni_manager.programs.waiting import StateFeed
from tests.programs.test_following import STATE

pytestmark = pytest.mark.unit

EVENT = f"data: {json.dumps(STATE)}\n\n".encode()
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(EVENT), EVENT)
LIMIT_S = 0.2


class Streamed:
    """An experiment whose daemon sends one state, and nothing after it."""

    id = "exp1"

    def __init__(self, server: socket.socket, daemon: ThreadPoolExecutor) -> None:
        self._client = ManagerClient(Address(port=server.getsockname()[1]))
        #: Has what the daemon receives after it was asked: nothing, once the stream is closed.
        self.end: Future[bytes] = daemon.submit(_serve, server)

    def events(self, *, may_start: bool) -> EventStream:
        return self._client.events(self.id)


def _serve(server: socket.socket) -> bytes:
    connection, _ = server.accept()
    with connection:
        connection.settimeout(10)
        connection.recv(65536)
        connection.sendall(STREAM)
        return connection.recv(1)


@pytest.fixture
def experiment() -> Iterator[Streamed]:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as daemon:
        yield Streamed(server, daemon)


def handle(experiment: Streamed) -> AsyncExperiment:
    found = AsyncExperiment()
    found._experiment = experiment  # type: ignore[assignment]
    return found


def require_closed(experiment: Streamed) -> None:
    assert experiment.end.result(timeout=20) == b""
    for thread in threading.enumerate():
        if thread.name == "events":
            thread.join(10)
            assert not thread.is_alive()


def test_stream_is_closed_at_the_limit(experiment: Streamed) -> None:
    assert following.wait(experiment, LIMIT_S, shown=False) is False  # type: ignore[arg-type]
    require_closed(experiment)


def test_stream_is_closed_at_the_limit_of_an_awaited_experiment(experiment: Streamed) -> None:
    async def wait() -> bool:
        return await handle(experiment).wait(LIMIT_S)

    assert asyncio.run(wait()) is False
    require_closed(experiment)


def test_stream_is_closed_where_a_program_stops_listening(experiment: Streamed) -> None:
    async def first() -> None:
        states = handle(experiment).events()
        assert await anext(states) == STATE
        await states.aclose()

    asyncio.run(first())
    require_closed(experiment)


def test_stream_that_opens_too_late_is_not_read() -> None:
    asked, close, read = threading.Event(), threading.Event(), threading.Event()

    class Late:
        def __iter__(self) -> Iterator[dict[str, object]]:
            read.set()
            yield {}

        def close(self) -> None:
            close.set()

    def states() -> Late:
        asked.wait(10)
        return Late()

    feed = StateFeed(states)
    feed.close()
    asked.set()
    assert close.wait(10) and not read.is_set()
