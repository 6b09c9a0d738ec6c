"""A network between runners and the trial listener: slow, and every tenth request fails in one of three ways.

It listens at another loopback address than the listener, on the same port, and knows just enough HTTP/1.1 to tell
requests and answers apart.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

#: Where runners are told that the manager is.
ADDRESS = "127.0.0.2"
#: The request is lost; it is answered and the answer is lost; half of the answer comes.
BEFORE, AFTER, HALF = "before", "after", "half"
_FAILURES = (BEFORE, AFTER, HALF)
_EVERY = 10


class BadNetwork:
    """`latency_s`: of each request with its answer."""

    def __init__(self, port: int, latency_s: float) -> None:
        self._port = port
        self._latency_s = latency_s
        self._numbers = itertools.count(1)
        self.requests = 0
        #: How many requests failed in which way, and on which routes something failed.
        self.failures: Counter[str] = Counter()
        self.failed_routes: Counter[str] = Counter()

    async def serve(self, ready: threading.Event, over: asyncio.Event) -> None:
        connections: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._carry(reader, writer))
            connections.add(task)
            task.add_done_callback(connections.discard)

        async with await asyncio.start_server(accept, ADDRESS, self._port):
            ready.set()
            await over.wait()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections)
        await asyncio.sleep(0)  # in which the connections are closed

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a runner, its requests one after the other, until either side or a failure ends it."""
        writers = [writer]
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
            writers.append(back)
            while await self._exchange(reader, writer, there, back):
                pass
        for each in writers:
            each.transport.abort()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> bool:  # fmt: skip
        """Whether the connection goes on."""
        request = await _message(reader)
        self.requests += 1
        failure = self._failure(request)
        await asyncio.sleep(self._latency_s / 2)
        if failure == BEFORE:
            return _reset(writer)
        back.write(request)
        answer = await _message(there)
        await asyncio.sleep(self._latency_s / 2)
        if failure == AFTER:
            return _reset(writer)
        writer.write(answer if failure is None else answer[: len(answer) // 2])
        await writer.drain()
        return failure is None

    def _failure(self, request: bytes) -> str | None:
        """Of every tenth request, the ways in turn."""
        number = next(self._numbers)
        if number % _EVERY:
            return None
        failure = _FAILURES[number // _EVERY % len(_FAILURES)]
        self.failures[failure] += 1
        self.failed_routes[request.split(b" ", 2)[1].decode().rpartition("/")[2]] += 1
        return failure


@contextmanager
def bad_network(port: int, latency_s: float) -> Iterator[BadNetwork]:
    """In a thread of its own. `port`: the listener's."""
    network = BadNetwork(port, latency_s)
    ready, over = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=[network.serve(ready, over)])
    thread.start()
    try:
        assert ready.wait(10), "it cannot listen"
        yield network
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """A whole request or response whose head names the length of its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    return head + await reader.readexactly(int(fields.get(b"content-length", b"0")))


def _reset(writer: asyncio.StreamWriter) -> bool:
    """The other side hears a reset, and not an end."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False
