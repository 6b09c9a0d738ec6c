"""Boxes between trial runners and the trial listener that answer in HTTP themselves: proxies, firewalls, login pages.

They answer anything, with any status, before or after a request went through, or truncate an answer. None of it comes
from the manager: it may cost time, never a result, a command or a decision.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from trial_runner import protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of one request."""

    name: str
    #: Sent instead of the listener's answer; empty: the connection is reset.
    answer: bytes = b""
    #: The request reaches the listener first.
    passes: bool = False
    #: Half of the listener's own answer is sent.
    is_half: bool = False


def _page(status: str, kind: str = "text/html", body: str = "<html><h1>Sorry</h1></html>", *headers: str) -> bytes:
    data = body.encode()
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(data)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + data


_JSON = "application/json"
ANSWERS = {
    "400": _page("400 Bad Request"),
    "401": _page("401 Unauthorized", "text/html", "<h1>log in</h1>", 'WWW-Authenticate: Basic realm="proxy"'),
    "403": _page("403 Forbidden"),
    "404": _page("404 Not Found"),
    "409": _page("409 Conflict"),
    "410": _page("410 Gone"),
    "413": _page("413 Request Entity Too Large"),
    "502": _page("502 Bad Gateway"),
    "503 for an hour": _page("503 Service Unavailable", "text/html", "", "Retry-After: 3600"),
    "a page": _page("200 OK"),
    "{}": _page("200 OK", _JSON, "{}"),
    "nothing": _page("204 No Content", _JSON, ""),
    "a redirect": _page("302 Found", "text/html", "", "Location: http://127.0.0.1:9/login"),
    "410 in JSON": _page("410 Gone", _JSON, '{"error": "no such backend"}'),
    "another manager": _page(
        "403 Forbidden",
        _JSON,
        '{"error": "this token is not the one of this attempt"}',
        "X-NNI-Manager: another/exp1/abcde/1",
    ),
}
#: The request is lost; the answer is lost; half of the answer arrives.
LOST_REQUEST = Fault(name="lost request")
LOST_ANSWER = Fault(name="lost answer", passes=True)
HALF_ANSWER = Fault(name="half an answer", passes=True, is_half=True)
#: Every way, before and after the request went through.
FAULTS = (
    *(Fault(name=name, answer=answer) for name, answer in ANSWERS.items()),
    *(Fault(name=f"{name}, afterwards", answer=answer, passes=True) for name, answer in ANSWERS.items()),
    LOST_REQUEST,
    LOST_ANSWER,
    HALF_ANSWER,
)
ROUTES = ("version", "code", "parameters", "outboxes", "status", "metrics", "log", "heartbeat", protocol.TOGETHER)

#: The last part of a request's path, and its body → the fault to apply, or None. Called in the order of requests.
Choice = Callable[[str, bytes], Fault | None]


class Each:
    """Applies faults to the first `count` requests of each route; other faults on the next route."""

    def __init__(self, count: int, faults: Sequence[Fault] = FAULTS, routes: Sequence[str] = ROUTES) -> None:
        places = {route: number * count for number, route in enumerate(routes)}
        self._left = {
            route: [faults[(place + step) % len(faults)] for step in range(count)] for route, place in places.items()
        }

    def __call__(self, route: str, _body: bytes) -> Fault | None:
        left = self._left.get(route)
        return left.pop(0) if left else None


class Middlebox:
    """A box between runners and listener. `port`: the listener's on this machine; `listen`: the manager's address for
    runners, port 0: any free one.

    `latency_s`: of each request with its answer.
    """

    def __init__(
        self, port: int, choose: Choice, *, listen: tuple[str, int] = ("127.0.0.1", 0), latency_s: float = 0.0
    ) -> None:
        self._port = port
        self._choose = choose
        self._listen = listen
        self._latency_s = latency_s
        self.port = 0
        self.requests = 0
        #: (route, name of the fault) → how often.
        self.met: Counter[tuple[str, str]] = Counter()

    async def serve(self, ready: threading.Event, over: asyncio.Event) -> None:
        connections: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._carry(reader, writer))
            connections.add(task)
            task.add_done_callback(connections.discard)
            task.add_done_callback(lambda _: writer.transport.abort())  # also if it was cancelled before it began

        async with await asyncio.start_server(accept, *self._listen, limit=_MOST_BYTES) as server:
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            await over.wait()
            await stop_accepting(server)
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)
        await some_turns()  # one to abort a connection whose task never began, one to close it

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards a runner's connection, request by request, until either side or a fault ends it."""
        writers = [writer]
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                there, back = await asyncio.open_connection("127.0.0.1", self._port, limit=_MOST_BYTES)
                writers.append(back)
                while await self._exchange(reader, writer, there, back):
                    pass
        finally:
            for each in writers:
                each.transport.abort()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> bool:
        """Forwards one request and its answer; returns whether the connection continues."""
        request = await _message(reader)
        fault = self._fault(request)
        await asyncio.sleep(self._latency_s / 2)
        answer = b""
        if fault is None or fault.passes:
            back.write(request)
            answer = await _message(there)
        await asyncio.sleep(self._latency_s / 2)
        return await _answer(writer, answer, fault)

    def _fault(self, request: bytes) -> Fault | None:
        self.requests += 1
        head, _, body = request.partition(b"\r\n\r\n")
        route = head.split(b" ", 2)[1].decode().rpartition("/")[2]
        fault = self._choose(route, body)
        if fault is not None:
            self.met[route, fault.name] += 1
        return fault


@contextmanager
def middlebox(
    port: int, choose: Choice, *, listen: tuple[str, int] = ("127.0.0.1", 0), latency_s: float = 0.0
) -> Iterator[Middlebox]:
    """A middlebox in a separate thread, see `Middlebox`."""
    box = Middlebox(port, choose, listen=listen, latency_s=latency_s)
    ready, over = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=[box.serve(ready, over)])
    thread.start()
    try:
        if not ready.wait(_START_S):
            raise OSError("the middlebox cannot listen")
        yield box
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


_START_S = 10.0
#: Maximum size of a message's head in bytes.
_MOST_BYTES = 1024 * 1024


async def _message(reader: asyncio.StreamReader) -> bytes:
    """A complete request or response with the length of its body in its head."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    return head + await reader.readexactly(int(fields.get(b"content-length", b"0")))


async def _answer(writer: asyncio.StreamWriter, answer: bytes, fault: Fault | None) -> bool:
    """Sends an answer, or a fault's replacement; returns whether the connection continues."""
    if fault is not None and not fault.answer and not fault.is_half:
        return _reset(writer)
    data = answer if fault is None else fault.answer or answer[: len(answer) // 2]
    writer.write(data)
    await writer.drain()
    return fault is None or not fault.is_half


def _reset(writer: asyncio.StreamWriter) -> bool:
    """Resets a connection, so that the other side sees no regular end; returns False: it does not continue."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


# Closing test servers without leaving a connection open

#: Turns of the loop after which an accepted socket is a connection, its serving task has started, and an aborted one is
#: closed: a task that was cancelled before its start closes nothing.
TURNS = 10


async def stop_accepting(server: asyncio.Server) -> None:
    """Closes the server once all accepted sockets are connections.

    Python before 3.12 leaves sockets open that were accepted in the turn in which the server closes.
    """
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())
    await some_turns()
    server.close()


async def some_turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
