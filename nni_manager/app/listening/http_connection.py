"""One client's connection: uvicorn's, with bounds on how long a request may take to come, and how large its head is.

uvicorn waits for the rest of a request for ever, and keeps all of a head: a few clients that dribble would hold
connections, and one that sends header after header would hold memory. How large a body may be, applications say.

An answer that begins before the whole body has come ends the connection: nobody reads the rest. What still comes of it
is thrown away for a moment, as a client that is sending would not get to see the answer otherwise.

Some clients offer another protocol with each request (Java's and `curl --http2`: ``Upgrade: h2c``). A server may ignore
that. The parser does not: it ends the request at its head, so the head is given to it again without the offer.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from nni_manager.api.access.guard import HARDENING
from nni_manager.api.access.local_users import PEER
from nni_manager.app.listening.peer import Peer
from nni_manager.app.listening.reserves import Connections
from nni_manager.app.log import Sparing
from nni_manager.client.control_socket import peer_uid

_no_http, _crowded, _foreign = (Sparing(logging.getLogger(__name__)) for _ in range(3))

#: Seconds for the head of a request, counted from its first byte, or from the connection when nothing comes.
HEAD_S = 30.0
#: Bytes of a head, and what may come with its end.
MAX_HEAD_BYTES = 64 * 1024
#: Seconds for a body, while somebody waits for it, and bytes that earn it one more: a large one may take its time.
BODY_S = 60.0
BODY_BYTES_A_SECOND = 16 * 1024
#: Seconds in which the rest of a body is thrown away that nobody reads.
LINGER_S = 2.0
#: Bytes of a body up to which it is joined to its head, which copies it.
_JOINED_BYTES = 64 * 1024
_WITH_BODY = (b"content-length", b"transfer-encoding")


class HttpConnection(HttpToolsProtocol):
    """Parses with httptools; `server` closes those that are too slow."""

    def __init__(
        self, *arguments: Any, connections: Connections, keep_alive_s: float | None = None, **named: Any
    ) -> None:
        """`connections`: of all listeners; one too many is closed at once. `keep_alive_s`: seconds for which it is kept
        open without a request; None: as uvicorn does."""
        super().__init__(*arguments, **named)
        if keep_alive_s is not None:
            self.timeout_keep_alive = keep_alive_s  # type: ignore[assignment]  # given to `call_later`
        self._connections = connections
        #: By which it came in and is counted; None: it is not.
        self._counted_port: int | None = None
        #: When the body that is awaited began, or somebody began to wait for it again; None while none is.
        self._body_since_s: float | None = None
        self._body_bytes = 0
        #: Since when what comes is thrown away; None: it is not.
        self._lingers_since_s: float | None = None
        #: When the head that is awaited began; None while none is.
        self._head_since_s: float | None = None
        self._head_bytes = 0
        #: The head that was just parsed offers another protocol: nothing was made of it yet.
        self._has_offer = False

    def is_too_slow(self, now_s: float) -> bool:
        """`now_s`: of the loop's clock."""
        if self._lingers_since_s is not None:
            return now_s - self._lingers_since_s > LINGER_S
        if self._head_since_s is not None and now_s - self._head_since_s > HEAD_S:
            return True
        if self._body_since_s is not None and self.flow.read_paused:
            self._begin_body(now_s)  # it is we who are slow
        return self._body_since_s is not None and now_s - self._body_since_s > self._patience_s()

    def _patience_s(self) -> float:
        return BODY_S + self._body_bytes / BODY_BYTES_A_SECOND

    def _begin_body(self, now_s: float) -> None:
        self._body_since_s = now_s
        self._body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self._head_since_s = self.loop.time()
        super().connection_made(cast(asyncio.Transport, _Transport(transport, self._linger)))
        self.app_state = {**self.app_state, PEER: Peer(transport)}
        port = self.server[1] if self.server is not None else None
        if port is None:
            self._refuse_other_users(transport)
            return
        if self._connections.enter(port):
            self._counted_port = port
        else:
            _crowded.warning(f"too many clients are connected to port {port}: some are not let in")
            transport.abort()

    def _refuse_other_users(self, transport: asyncio.Transport) -> None:
        """Closes another user's connection to the control socket, which asks for no token: its modes may be lost."""
        if (uid := peer_uid(transport.get_extra_info("socket"))) not in (0, os.geteuid()):
            _foreign.warning(f"user {uid} has connected to the control socket, and is not let in")
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._counted_port is not None:
            self._connections.leave(self._counted_port)
            self._counted_port = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._lingers_since_s is not None:
            return
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except HttpParserError:
            _no_http.warning("a client sent something that is no HTTP")
            self.send_400_response("Invalid HTTP request received.")
        if self._head_since_s is None:
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def _parse(self, data: bytes) -> None:
        rest: bytes | memoryview = data
        while rest:
            try:
                self.parser.feed_data(rest)
                return
            except HttpParserUpgrade as end:
                self._parse_without_offer()
                rest = memoryview(rest)[end.args[0] :]

    def _parse_without_offer(self) -> None:
        """The same head, of what the parser itself took from it: no byte of a body is touched."""
        self._has_offer = False
        method = self.parser.get_method()
        if method == b"CONNECT":
            raise HttpParserError("no tunnels here")
        lines = [b"%s %s HTTP/%s" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = _parser(self)  # the other one takes nothing more where the head says `close`, too
        self.parser.feed_data(b"\r\n".join(lines) + b"\r\n\r\n")

    # What the parser tells

    def on_message_begin(self) -> None:
        if self._head_since_s is None:  # not the first request of the connection
            self._head_since_s = self.loop.time()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_since_s is not None:  # else it comes behind a body, where nothing reads it
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._has_offer = self.parser.should_upgrade()
        if self._has_offer:
            return
        self._head_since_s = None
        self._head_bytes = 0
        super().on_headers_complete()
        has_body = any(name in _WITH_BODY for name, _ in self.headers)
        if has_body:
            self._begin_body(self.loop.time())
        self._watch_answer(self.cycle, has_body=has_body)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._has_offer:
            self._body_since_s = None
            super().on_message_complete()

    def _watch_answer(self, cycle: RequestResponseCycle, *, has_body: bool) -> None:
        """Ends the connection with an answer that begins before the whole body has come, and has an answer's head go
        with its body: each write is a record of TLS and a call of the system."""
        send, transport = cycle.send, cast(_Transport, self.transport)

        async def watched_send(message: Any) -> None:
            if message["type"] == "http.response.start":
                if has_body and cycle.more_body:
                    cycle.keep_alive = False  # which the answer then says
                transport.hold()
            await send(message)

        cycle.send = watched_send  # type: ignore[method-assign]

    # A body that nobody reads

    def _linger(self) -> bool:
        """Whether a connection that is to be closed first throws away what still comes of a body."""
        if self._lingers_since_s is not None or self._body_since_s is None or not self.transport.can_write_eof():
            return False
        self._lingers_since_s = self.loop.time()
        self.transport.write_eof()
        self.flow.resume_reading()
        return True

    def send_400_response(self, msg: str) -> None:
        """Answers 400, with what every refusal tells a browser."""
        head = ["HTTP/1.1 400 Bad Request", "content-type: text/plain; charset=utf-8", f"content-length: {len(msg)}"]
        head += [f"{name.lower()}: {value}" for name, value in HARDENING.items()]
        self.transport.write("\r\n".join([*head, "connection: close", "", msg]).encode("ascii"))
        self.transport.close()


def _parser(connection: HttpConnection) -> HttpRequestParser:
    """A parser as uvicorn makes it."""
    parser = HttpRequestParser(connection)
    if hasattr(parser, "set_dangerous_leniencies"):  # since httptools 0.6.3
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


class _Transport:
    """A transport that drops writes while the connection is being closed: uvloop's own raises, and uvicorn goes on
    answering a request behind which something came that is no HTTP, or whose sender has hung up."""

    def __init__(self, transport: asyncio.Transport, linger: Callable[[], bool]) -> None:
        """`linger`: asked when it is to be closed; True: not yet, and it counts as being closed."""
        self._transport = transport
        self._linger = linger
        self._lingers = False
        #: The next thing written is held back.
        self._holds = False
        self._held = b""

    def hold(self) -> None:
        """Has the next thing written wait for what follows it, until the loop turns."""
        self._holds = True

    def write(self, data: bytes) -> None:
        if self.is_closing():
            return
        if self._holds:
            self._holds, self._held = False, data
            asyncio.get_running_loop().call_soon(self._let_go)
            return
        if self._held and len(data) > _JOINED_BYTES:
            self._let_go()
        held, self._held = self._held, b""
        self._transport.write(held + data if held else data)

    def write_eof(self) -> None:
        self._let_go()
        self._transport.write_eof()

    def _let_go(self) -> None:
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._transport.write(held)

    def is_closing(self) -> bool:
        return self._lingers or self._transport.is_closing()

    def close(self) -> None:
        if self._transport.is_closing():
            return
        self._let_go()
        if self._lingers:
            self._transport.abort()  # what nobody reads may keep a closed connection for long
        elif self._linger():
            self._lingers = True
        else:
            self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
