"""Clients that are slow or send endless heads."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from nni_manager.api.access.guard import Guard, admit
from nni_manager.api.access.sparing import Sparing
from nni_manager.api.runners.trial_listener import HEARTBEAT_S
from nni_manager.app.listening import http_connection, reserves
from nni_manager.app.listening import listeners as listeners_module
from nni_manager.app.listening.listeners import Listeners
from nni_manager.app.listening.ports import reserve
from nni_manager.scheduler import experiment_log
from tests.waiting import until_async

pytestmark = pytest.mark.unit

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\n"


async def body_and_all(scope: Scope, receive: Receive, send: Send) -> None:
    """Echoes the body."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> bytes:
        """A head and its body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return head + await self.reader.readexactly(length)

    async def is_closed(self) -> bool:
        with suppress(ConnectionResetError):  # reset, as unread bytes were pending
            while await self.reader.read(1000):
                pass
        return True


@pytest.fixture
async def listeners() -> AsyncIterator[Listeners]:
    listeners = Listeners(body_and_all)
    await listeners.open_port("service", reserve("127.0.0.1", 0))
    yield listeners
    await listeners.close()


@pytest.fixture
async def client(listeners: Listeners) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(listeners.open[0].address.rpartition(":")[2]))
    yield Client(reader, writer)
    writer.close()


def close_slow(listeners: Listeners, seconds: float) -> None:
    """As in the daemon."""
    listeners._close_slow(asyncio.get_running_loop().time() + seconds)


def connections(listeners: Listeners) -> list[Any]:
    return list(listeners._server.server_state.connections)


@pytest.mark.parametrize("sent", [b"", b"G", GET, GET + b"X-a: b\r\n" * 20])
async def test_missing_head_times_out(listeners: Listeners, client: Client, sent: bytes) -> None:
    await client.send(sent)
    await until_async(lambda: connections(listeners))
    close_slow(listeners, http_connection.HEAD_S - 1)
    (connection,) = connections(listeners)
    assert not connection.transport.is_closing()
    if sent:
        await client.send(b"ET" if sent == b"G" else b"X-more: of it\r\n")  # dribbling buys no time
    close_slow(listeners, http_connection.HEAD_S + 1)
    assert connection.transport.is_closing()
    assert await client.is_closed()


async def test_between_requests_and_in_them_is_no_head(listeners: Listeners, client: Client) -> None:
    await client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\na")
    await until_async(lambda: any(connection.cycle for connection in connections(listeners)))
    close_slow(listeners, http_connection.BODY_S - 1)
    await client.send(b"b")
    assert (await client.answer()).endswith(b"\r\n\r\nab")
    close_slow(listeners, 3600)
    await client.send(GET + b"\r\n")
    assert b" 200 OK" in await client.answer()


async def test_the_second_head_has_its_own_time(listeners: Listeners, client: Client) -> None:
    await client.send(GET + b"\r\n")
    await client.answer()
    close_slow(listeners, 3600)
    await client.send(GET)
    (connection,) = connections(listeners)
    await until_async(lambda: connection._head_since_s is not None)
    close_slow(listeners, http_connection.HEAD_S - 1)
    assert not connection.transport.is_closing()
    close_slow(listeners, http_connection.HEAD_S + 1)
    assert await client.is_closed()


@pytest.mark.parametrize("framing", [b"Content-Length: 9\r\n\r\na", b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n"])
async def test_missing_body_times_out(listeners: Listeners, client: Client, framing: bytes) -> None:
    await client.send(POST + framing)
    await until_async(lambda: any(connection._body_bytes for connection in connections(listeners)))
    (connection,) = connections(listeners)
    close_slow(listeners, http_connection.BODY_S - 1)
    assert not connection.transport.is_closing()
    close_slow(listeners, http_connection.BODY_S + 1)
    assert connection.transport.is_closing()
    close_slow(listeners, http_connection.BODY_S + http_connection.LINGER_S + 2)
    assert await client.is_closed()


async def test_a_large_body_may_take_its_time(listeners: Listeners, client: Client) -> None:
    size = 100 * http_connection.BODY_BYTES_A_SECOND
    await client.send(POST + f"Content-Length: {size + 1}\r\n\r\n".encode() + b"a" * size)
    await until_async(lambda: connections(listeners))
    (connection,) = connections(listeners)
    await until_async(lambda: connection._body_bytes == size)
    close_slow(listeners, http_connection.BODY_S + 99)
    assert not connection.transport.is_closing()
    await client.send(b"b")
    assert (await client.answer()).endswith(b"ab")


async def test_client_waiting_for_the_daemon_is_not_slow() -> None:
    """An application that does not read yet, so flow control pauses its client."""
    go_on = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await go_on.wait()
        await body_and_all(scope, receive, send)

    async with served(slow) as (listeners, client):
        size = 1024 * 1024
        sending = asyncio.create_task(client.send(POST + f"Content-Length: {size}\r\n\r\n".encode() + b"a" * size))
        await until_async(lambda: connections(listeners) and connections(listeners)[0].cycle)
        (connection,) = connections(listeners)
        await until_async(lambda: connection.flow.read_paused)
        close_slow(listeners, 3600)
        go_on.set()
        assert len(await client.answer()) > size
        await sending


# ------------------------------------------------------------------------------------------------ unread bodies


async def refuse(_: Scope, __: Receive, send: Send) -> None:
    """Without a look at the body."""
    await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"no"})


@asynccontextmanager
async def served(application: ASGIApp) -> AsyncIterator[tuple[Listeners, Client]]:
    listeners = Listeners(application)
    await listeners.open_port("service", reserve("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(listeners.open[0].address.rpartition(":")[2]))
    yield listeners, Client(reader, writer)
    writer.close()
    await listeners.close()


@pytest.mark.parametrize("framing", [b"Content-Length: 900\r\n\r\na", b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n"])
async def test_refusal_with_unread_body_ends_connection(framing: bytes) -> None:
    async with served(refuse) as (listeners, client):
        await client.send(POST + framing)
        answer = await client.answer()
        assert answer.startswith(b"HTTP/1.1 403 ") and b"\r\nconnection: close\r\n" in answer
        assert await client.reader.read() == b""
        (connection,) = connections(listeners)
        close_slow(listeners, http_connection.LINGER_S + 1)
        await until_async(lambda: not connections(listeners))
        assert connection.transport.is_closing()


async def test_refusal_reaches_a_client_that_is_still_sending() -> None:
    async with served(refuse) as (listeners, client):
        size = 4 * 1024 * 1024
        await client.send(POST + f"Content-Length: {size}\r\n\r\n".encode())
        for _ in range(size // 65536):
            await client.send(b"a" * 65536)
        assert (await client.answer()).endswith(b"\r\n\r\nno")
        client.writer.close()
        await until_async(lambda: not connections(listeners))


async def test_a_body_that_has_come_keeps_the_connection() -> None:
    async with served(refuse) as (_, client):
        for _ in range(2):
            await client.send(POST + b"Content-Length: 2\r\n\r\nab")
            assert b"connection: close" not in await client.answer()


# ------------------------------------------------------------------------------------------------ many, and no HTTP


class _Silent:
    """A connection that shows no token."""

    def __init__(self) -> None:
        self.has_given_way = False

    def give_way(self) -> None:
        self.has_given_way = True


def _ended(strangers: list[_Silent]) -> list[int]:
    return [number for number, each in enumerate(strangers) if each.has_given_way]


def test_longest_silent_stranger_of_a_port_gives_way() -> None:
    strangers = reserves.Strangers(files=16)
    all_ = [_Silent() for _ in range(6)]
    for each in all_[:4]:
        assert strangers.enter(1, each)
    strangers.hear(1, all_[0])
    assert not strangers.enter(1, all_[4]) and _ended(all_) == [1]
    strangers.leave(1, all_[2])  # it has shown its token
    assert strangers.enter(1, all_[5]) and _ended(all_) == [1]
    strangers.hear(1, all_[1])
    strangers.leave(1, all_[1])
    assert not strangers.enter(1, _Silent()) and _ended(all_) == [1, 3]


def test_fullest_port_gives_way_to_the_others() -> None:
    strangers = reserves.Strangers(files=16)
    of_first, of_second = [_Silent() for _ in range(4)], [_Silent() for _ in range(3)]
    assert all(strangers.enter(1, each) for each in of_first) and all(strangers.enter(2, each) for each in of_second)
    assert strangers.enter(3, _Silent()) and not strangers.enter(3, _Silent())
    assert (_ended(of_first), _ended(of_second)) == ([0], [])


@pytest.mark.parametrize("guarded", ["token", "session", "user", "runner"])
async def test_admitted_client_is_not_ended_by_a_flood(monkeypatch: pytest.MonkeyPatch, guarded: str) -> None:
    """Five times as many silent connections as there is room for."""
    monkeypatch.setattr(listeners_module, "Strangers", lambda: reserves.Strangers(files=16))
    token = "0123456789abcdef" if guarded in ("token", "session") else ""
    head = GET + {"token": f"Authorization: Bearer {token}\r\n".encode()}.get(guarded, b"")
    application: ASGIApp = _admits_runners if guarded == "runner" else Guard(body_and_all, token=token)
    async with served(application) as (listeners, client):
        port = listeners.open[0].port
        if guarded == "session":
            await client.send(f"GET /?token={token} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            cookie = re.search(rb"set-cookie: ([^;]+)", await client.answer())
            assert cookie
            head += b"Cookie: " + cookie[1] + b"\r\n"
        await client.send(head + b"\r\n")
        assert b" 200 " in await client.answer()
        silent = [Client(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(20)]
        await client.send(head + b"\r\n")
        assert b" 200 " in await client.answer()
        again = Client(*await asyncio.open_connection("127.0.0.1", port))
        await again.send(head + b"\r\n")
        assert b" 200 " in await again.answer()
        for each in silent[:16]:
            assert await each.is_closed()
        for each in (*silent, again):
            each.writer.close()


def test_client_with_too_many_connections_stays_a_stranger() -> None:
    strangers = reserves.Strangers(files=16)
    assert [strangers.admit("") for _ in range(5)] == [True] * 4 + [False]
    strangers.dismiss("")
    assert strangers.admit("") and not strangers.admit("")
    assert [strangers.admit("job") for _ in range(65)] == [True] * 64 + [False]


async def _admits_runners(scope: Scope, receive: Receive, send: Send) -> None:
    admit(scope)
    await body_and_all(scope, receive, send)


async def test_client_without_a_token_stays_a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners_module, "Strangers", lambda: reserves.Strangers(files=16))
    async with served(Guard(body_and_all, token="0123456789abcdef")) as (listeners, client):
        for head in (GET, GET + b"Authorization: Bearer wrong\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"):
            await client.send(head + b"\r\n")
            await client.answer()
        port = listeners.open[0].port
        others = [Client(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(4)]
        assert await client.is_closed()
        for each in others:
            each.writer.close()


async def test_invalid_http_is_logged_once_outside_experiment_logs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "_no_http", Sparing(logging.getLogger("nni_manager.test")))
    said_by: list[str] = []
    caplog.handler.addFilter(lambda _: said_by.append(experiment_log.current.get()) or True)
    listeners = Listeners(body_and_all)
    token = experiment_log.current.set("exp1")  # its first job has the trial listener opened
    await listeners.open_port("trials", reserve("127.0.0.1", 0), body_and_all)
    experiment_log.current.reset(token)
    for _ in range(30):
        client = Client(*await asyncio.open_connection("127.0.0.1", listeners.open[0].port))
        await client.send(b"\x16\x03\x01 no HTTP\r\n\r\n")
        answer = await client.answer()
        assert answer.startswith(b"HTTP/1.1 400 ") and b"\r\nx-content-type-options: nosniff\r\n" in answer
        client.writer.close()
    await listeners.close()
    found = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.getMessage() for record in found] == ["a client sent invalid HTTP"]
    assert said_by and set(said_by) == {""}


def test_rate_limited_warning_has_a_count(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [0.0]
    sparing = Sparing(logging.getLogger("nni_manager.test"), lambda: now_s[0])
    for now_s[0] in (0, 1, 59, 61, 62, 130):
        sparing.warning("it rains")
    assert [record.getMessage() for record in caplog.records] == [
        "it rains",
        "it rains (and 2 more since the last such line)",
        "it rains (and 1 more since the last such line)",
    ]


async def test_a_head_without_end_is_refused(listeners: Listeners, client: Client) -> None:
    await client.send(GET)
    await until_async(lambda: connections(listeners))
    (connection,) = connections(listeners)
    with suppress(ConnectionError):
        for _ in range(100):
            await client.send((b"X-more: " + b"a" * 990 + b"\r\n") * 10)
    assert await client.is_closed()
    # a read may hold 256 KiB
    assert len(connection.headers) * 1000 < http_connection.MAX_HEAD_BYTES + 256 * 1024


async def test_a_head_of_usual_size_with_a_large_body_is_none(client: Client) -> None:
    size = 3 * http_connection.MAX_HEAD_BYTES
    await client.send(GET.replace(b"GET", b"POST") + f"Content-Length: {size}\r\n\r\n".encode() + b"a" * size)
    assert len(await client.answer()) > size


async def test_trailers_are_not_kept(listeners: Listeners, client: Client) -> None:
    await client.send(GET.replace(b"GET", b"POST") + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n")
    await client.send(b"X-trailer: b\r\n" * 10)
    await client.send(b"\r\n")
    assert (await client.answer()).endswith(b"\r\n\r\na")
    (connection,) = connections(listeners)
    assert [name for name, _ in connection.headers] == [b"host", b"transfer-encoding"]


# ------------------------------------------------------------------------------------------------ other protocols

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"
#: A body that is itself a request, and one in two chunks.
INNER = GET + b"\r\n"
BODIES = [
    (b"Content-Length: 2\r\n\r\nab", b"ab"),
    (b"Content-Length: %d\r\n\r\n" % len(INNER) + INNER, INNER),
    (b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", b"abc"),
    (b"Content-Length: 0\r\n\r\n", b""),
    (b"\r\n", b""),
]


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize(("sent", "body"), BODIES)
@pytest.mark.parametrize("offer", [OFFER, b"Upgrade: websocket\r\nConnection: keep-alive, upgrade\r\n"])
async def test_an_offer_of_another_protocol_loses_no_body(
    listeners: Listeners, client: Client, sent: bytes, body: bytes, offer: bytes, step: int
) -> None:
    """Also of the requests behind it on the same connection."""
    request = POST + offer + sent
    await _in_pieces(client, request * 3 + POST + b"Content-Length: 1\r\n\r\nz", step)
    for _ in range(3):
        assert (await client.answer()).partition(b"\r\n\r\n")[2] == body
    assert (await client.answer()).endswith(b"\r\n\r\nz")
    close_slow(listeners, 3600)
    assert not connections(listeners)[0].transport.is_closing()


@pytest.mark.parametrize("step", [1, 10_000])
@pytest.mark.parametrize(("sent", "body"), BODIES)
@pytest.mark.parametrize("tokens", [b"upgrade, close", b"close, Upgrade"])
async def test_upgrade_offer_in_last_request_is_answered(
    client: Client, sent: bytes, body: bytes, tokens: bytes, step: int
) -> None:
    await _in_pieces(client, POST + b"Connection: " + tokens + b"\r\nUpgrade: h2c\r\n" + sent, step)
    head, _, answered = (await client.answer()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200") and b"connection: close" in head.lower() and answered == body


async def _in_pieces(client: Client, data: bytes, step: int) -> None:
    for start in range(0, len(data), step):
        await client.send(data[start : start + step])
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 1\r\nContent-Length: 2\r\n",
        b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chun\r\n ked\r\n",
        b"Content-Length: -1\r\n",
    ],
)
async def test_an_offer_excuses_no_doubtful_body(client: Client, framing: bytes) -> None:
    await client.send(POST + OFFER + framing + b"\r\nab")
    assert (await client.answer()).startswith(b"HTTP/1.1 400 ")
    assert await client.is_closed()


async def test_connect_is_refused(client: Client) -> None:
    await client.send(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n" + INNER)
    assert (await client.answer()).startswith(b"HTTP/1.1 400 ")
    assert await client.is_closed()


# ------------------------------------------------------------------------------------------------ gone in the middle


@pytest.mark.parametrize("behind", [b"\xff\xfe garbage\r\n\r\n", GET + b"\r\nno HTTP\r\n\r\n"])
def test_to_answer_a_connection_that_is_being_closed_is_no_fault(
    caplog: pytest.LogCaptureFixture, behind: bytes
) -> None:
    """With uvloop, the daemon's loop: its transports raise then."""
    with caplog.at_level("ERROR"):
        first = uvloop.run(_answered_after_garbage(behind))
    assert first.startswith(b"HTTP/1.1 400 ")
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def _answered_after_garbage(behind: bytes) -> bytes:
    """Invalid HTTP arrives while the previous request is being answered."""
    came, go_on, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        came.set()
        await go_on.wait()
        await body_and_all(scope, receive, send)
        answered.set()

    listeners = Listeners(slow)
    await listeners.open_port("service", reserve("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(listeners.open[0].address.rpartition(":")[2]))
    writer.write(GET + b"\r\n")
    await came.wait()
    (connection,) = listeners._server.server_state.connections
    connection.data_received(behind)
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it is closed by now
    go_on.set()
    async with asyncio.timeout(5):
        await answered.wait()
    first = await reader.readline()
    writer.close()
    await listeners.close()
    return first


async def test_a_head_goes_with_its_body(listeners: Listeners, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write is a TLS record and a system call."""
    await client.send(GET + b"\r\n")
    await client.answer()
    (connection,) = connections(listeners)
    written: list[bytes] = []
    inner = connection.transport._transport
    monkeypatch.setattr(connection.transport, "_transport", _Noting(inner, written))
    await client.send(POST + b"Content-Length: 2\r\n\r\nab")
    assert (await client.answer()).endswith(b"\r\n\r\nab")
    assert len(written) == 1
    long = http_connection._JOINED_BYTES + 1
    await client.send(POST + b"Content-Length: %d\r\n\r\n" % long + b"x" * long)
    assert (await client.answer()).endswith(b"x" * long)
    assert [len(data) for data in written[2:]] == [long], "what is long is not copied"


class _Noting:
    """A transport that records writes."""

    def __init__(self, transport: Any, written: list[bytes]) -> None:
        self._transport = transport
        self._written = written

    def write(self, data: bytes) -> None:
        self._written.append(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def test_a_head_whose_body_takes_its_time_goes_alone() -> None:
    go_on = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"ab"})

    async with served(slow) as (_, client):
        await client.send(GET + b"\r\n")
        assert b" 200 OK" in await client.reader.readuntil(b"\r\n\r\n")
        go_on.set()
        assert await client.reader.readexactly(2) == b"ab"


async def test_runner_connection_survives_heartbeat_interval() -> None:
    listeners = Listeners(body_and_all)
    reserved = reserve("127.0.0.1", 0)
    await listeners.open_port("trials", reserved, body_and_all)
    _, writer = await asyncio.open_connection("127.0.0.1", reserved.port)
    await until_async(lambda: connections(listeners))
    (connection,) = connections(listeners)
    assert connection.timeout_keep_alive >= 2 * HEARTBEAT_S
    writer.close()
    await listeners.close()
