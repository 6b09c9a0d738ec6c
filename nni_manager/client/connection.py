"""HTTP over a Unix socket or TCP, with the standard library alone.

The command line must start in 0.2 s: importing `http.client` costs about 23 ms, httpx 90 ms. Proxies in the environment
are ignored: a daemon is always reached directly.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from nni_manager.client import address, answers, silence
from nni_manager.client.address import Address
from nni_manager.client.answers import MOST_BYTES, NotAnAnswer
from nni_manager.domain.errors import (
    ConfigInvalid,
    Conflict,
    Ending,
    InvalidInput,
    NniManagerError,
    NotFound,
    Problem,
    StoreUnavailable,
)
from nni_manager.domain.text import printable

#: Bytes of a body that are read at once.
_PART_BYTES = 1024 * 1024
#: Seconds for a body, and bytes that extend them by one second.
_BODY_S = 60.0
_BODY_BYTES_A_SECOND = 16 * 1024

Query = Mapping[str, str | int | list[str] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to the daemon.

    `path` starts with a slash. None in `query`: not given. `body` is sent as JSON unless None; `file` is streamed
    unchanged.
    """

    method: str
    path: str
    query: Query
    body: object = None
    file: Path | None = None
    #: Seconds of silence after which the daemon counts as dead; None: unlimited.
    timeout_s: float | None = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer with a status 2xx."""

    headers: Mapping[str, str]
    body: bytes


def exchange(address: Address, request: Request) -> Answer:
    """Send a request and read the whole answer. Raises Unreachable, or the error in the answer (`_error_of`)."""
    with open_answer(address, request) as response:
        return Answer(headers=dict(response.headers.items()), body=_body(response, address))


def _body(response: http.client.HTTPResponse, address: Address) -> bytes:
    """The whole body. Raises NotAnAnswer if it is too long, TimeoutError if it arrives too slowly."""
    parts, size, begun_s = [], 0, time.monotonic()
    while part := response.read1(_PART_BYTES):
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise not_an_answer(address, f"it has more than {MOST_BYTES // 2**20} MB")
        if time.monotonic() - begun_s > _BODY_S + size / _BODY_BYTES_A_SECOND:
            raise TimeoutError
    return b"".join(parts)


def not_an_answer(address: Address, why: object) -> NotAnAnswer:
    return NotAnAnswer(f"the server at {address} did not send an answer of a manager: {why}")


def find_silence(address: Address) -> str:
    """The message about a daemon that does not answer a simple request; empty if it answers or nothing listens."""
    request = Request(method="GET", path="/api/v1/daemon", query={}, timeout_s=silence.PROBE_S)
    try:
        exchange(address, request)
    except Unreachable as error:
        if isinstance(error.__cause__, TimeoutError):
            return f"Waiting for the daemon at {address}, which does not answer. See its log."
    except NniManagerError:  # a refusal is an answer, too
        pass
    return ""


@contextmanager
def open_answer(
    address: Address, request: Request, cut_off: CutOff | None = None
) -> Iterator[http.client.HTTPResponse]:
    """An arriving answer with a status 2xx; leaving the context closes the connection.

    `cut_off` may end it earlier, which raises Unreachable here.
    """
    cut_off = cut_off or CutOff()
    connection = _connection(address, request.timeout_s)
    try:
        _connect(connection, address)
        cut_off.watch(connection.sock)
        with _send(connection, address, request) as response:
            if response.status >= 300:
                raise _error_of(response.status, _body(response, address), has_next="Retry-After" in response.headers)
            yield response
    except TimeoutError as error:
        raise Unreachable(f"the daemon at {address} did not answer in time; see its log") from error
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(_no_answer(address, error)) from error
    finally:
        cut_off.watch(None)
        connection.close()


class CutOff:
    """Ends an answer for the thread that waits for its next part; called by another thread."""

    def __init__(self) -> None:
        # do not shut down a socket that is being closed, because another file may have its number
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_due = False

    def watch(self, connected: socket.socket | None) -> None:
        """Set the socket of the answer; None: it is about to be closed."""
        with self._lock:
            self._socket = connected
            self._shut_if_due()

    def now(self) -> None:
        """End the answer, also before it is opened."""
        with self._lock:
            self._is_due = True
            self._shut_if_due()

    def _shut_if_due(self) -> None:
        if self._is_due and self._socket is not None:
            with suppress(OSError):  # the other side has closed it
                # not the method of TLS sockets, which takes the TLS layer away from a read under way
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _connect(connection: http.client.HTTPConnection, address: Address) -> None:
    try:
        connection.connect()
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NobodyListens(_no_answer(address, error)) from error


def _no_answer(address: Address, error: Exception) -> str:
    return f"the daemon at {address} cannot be reached: {str(error) or type(error).__name__}; is it running?"


def _send(connection: http.client.HTTPConnection, address: Address, request: Request) -> http.client.HTTPResponse:
    headers = {"Accept": "application/json"}
    headers |= {"Authorization": f"Bearer {address.token}"} if address.token else {}
    query = urlencode({name: value for name, value in request.query.items() if value is not None}, doseq=True)
    path = address.prefix + (f"{request.path}?{query}" if query else request.path)
    if request.file is not None:
        with open(request.file, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            headers |= {"Content-Type": "application/gzip", "Content-Length": str(size)}
            connection.request(request.method, path, file, headers)
            return connection.getresponse()
    body = None if request.body is None else json.dumps(request.body).encode()
    headers |= {"Content-Type": "application/json"} if body is not None else {}
    connection.request(request.method, path, body, headers)
    return connection.getresponse()


def _connection(address: Address, timeout_s: float | None) -> http.client.HTTPConnection:
    if address.socket:
        return _UnixConnection(address, timeout_s)
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    return kind(address.host, address.port, timeout=timeout_s)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a control socket; the host name is only for the Host header."""

    def __init__(self, address: Address, timeout_s: float | None) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._address = address

    def connect(self) -> None:
        self.sock = address.connect_to(self._address.socket, self._address.owner, self.timeout)


def arriving_lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The lines of an answer as they arrive.

    Raises HTTPException if the connection breaks, unlike the lines of `http.client`, which just end.
    """
    rest = b""
    while part := response.read1():
        *lines, rest = (rest + part).split(b"\n")
        yield from lines
        if len(rest) > MOST_BYTES:
            raise http.client.HTTPException("a line of the stream is too long")


def read_events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The data of each event, without comments (keep-alives) and an unfinished last event."""
    data: list[str] = []
    size = 0
    for line in lines:
        size += len(line)
        if size > MOST_BYTES:
            raise NotAnAnswer(f"an event has more than {MOST_BYTES // 2**20} MB")
        text = line.decode(errors="replace").rstrip("\r\n")
        if text.startswith("data:"):
            data.append(text[5:].removeprefix(" "))
        elif not text and data:
            yield answers.decode("\n".join(data))
            data, size = [], 0
        elif not text:
            size = 0


class EventStream:
    """The data of each event of an answer, as they arrive.

    The connection opens with the first event. It closes at the end, by `close`, or when nothing refers to the stream
    any longer. Raises Unreachable if the daemon dies.
    """

    def __init__(self, address: Address, request: Request) -> None:
        self._cut_off = CutOff()
        self._events = _events(address, request, self._cut_off)  # a function, because it must not refer to this object

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, Any]:
        return next(self._events)

    def close(self) -> None:
        """End the stream, from any thread, including a wait for the next event."""
        self._cut_off.now()
        with suppress(ValueError):  # another thread is reading, and closes the connection
            self._events.close()


def _events(address: Address, request: Request, cut_off: CutOff) -> Generator[dict[str, Any]]:
    with open_answer(address, request, cut_off) as response:
        try:
            yield from read_events(arriving_lines(response))
        except NotAnAnswer as error:
            raise not_an_answer(address, error) from None


class Unreachable(NniManagerError):
    """The address does not answer, or the connection broke during an answer."""


class NobodyListens(Unreachable):
    """No daemon listens at the address, so nothing was sent."""


class AccessRefused(NniManagerError):
    """The listener refuses access."""


class TokenRefused(AccessRefused):
    """The listener requires a token; the request had none or a wrong one."""


_ERRORS: dict[int, type[NniManagerError]] = {
    HTTPStatus.BAD_REQUEST: InvalidInput,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: InvalidInput,
    HTTPStatus.UNAUTHORIZED: TokenRefused,
    HTTPStatus.FORBIDDEN: AccessRefused,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.SERVICE_UNAVAILABLE: StoreUnavailable,
}


def _error_of(status: int, body: bytes, *, has_next: bool = False) -> NniManagerError:
    """The error for an answer, with the answer's message. `has_next`: the next daemon could handle the request."""
    answer = _object(body)
    problems, warnings = ([_problem(one) for one in answer.get(name) or []] for name in ("problems", "warnings"))
    if problems:
        return ConfigInvalid(problems, warnings)
    sentence = answer.get("error") or f"the daemon answered with status {status} without explanation; see its log"
    kind = Ending if status == HTTPStatus.CONFLICT and has_next else _ERRORS.get(status, NniManagerError)
    return kind(printable(str(sentence)))


def _object(body: bytes) -> dict[str, Any]:
    try:
        answer = answers.decode(body)
    except NotAnAnswer:
        return {}
    return answer if isinstance(answer, dict) else {}


def _problem(entry: dict[str, Any]) -> Problem:
    """A problem in an answer. Raises NotAnAnswer."""
    line = entry.get("line")
    texts = {name: printable(str(entry.get(name) or "")) for name in ("message", "field", "file")}
    return Problem(**texts, line=line if isinstance(line, int) else 0)
