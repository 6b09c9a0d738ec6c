"""A client's connection: uvicorn's protocol, with limits for the time of a request and the size of its head.

uvicorn waits without limit for the rest of a request and keeps the whole head. So slow clients would occupy
connections, and endless headers would fill the memory. The applications limit the size of bodies.

An answer that begins before the whole body has arrived ends the connection. The rest of the body is discarded for a
moment, because a client that is still sending would not see the answer.

Some clients offer another protocol with each request (Java's and `curl --http2`: ``Upgrade: h2c``), which a server may
ignore. The parser ends the request at such a head, so the head is parsed again without the offer.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from nni_manager.api.access.guard import ADMIT, HARDENING, PEER
from nni_manager.api.access.sparing import Sparing
from nni_manager.app.listening.peer import Peer
from nni_manager.app.listening.reserves import Strangers
from nni_manager.client.address import peer_uid

_no_http, _crowded, _foreign = (Sparing(logging.getLogger(__name__)) for _ in range(3))

#: Seconds for the head of a request, from its first byte, or from the connection if no byte arrives.
HEAD_S = 30.0
#: Maximum size of a head in bytes, including bytes that arrive with its end.
MAX_HEAD_BYTES = 64 * 1024
#: Seconds for a body, counted while the application waits for it, and bytes that extend them by one second.
BODY_S = 60.0
BODY_BYTES_A_SECOND = 16 * 1024
#: Seconds for which the unread rest of a body is discarded.
LINGER_S = 2.0
#: Largest body, in bytes, that is copied behind its head so that one write sends both.
_JOINED_BYTES = 64 * 1024
_WITH_BODY = (b"content-length", b"transfer-encoding")


class HttpConnection(HttpToolsProtocol):
    """A connection parsed by httptools; `server` closes connections that are too slow."""

    def __init__(self, *arguments: Any, strangers: Strangers, keep_alive_s: float | None = None, **named: Any) -> None:
        """`strangers`: connections of all listeners without a token. `keep_alive_s`: time for which an idle connection
        is kept, in seconds; None: uvicorn's default."""
        super().__init__(*arguments, **named)
        if keep_alive_s is not None:
            self.timeout_keep_alive = keep_alive_s  # type: ignore[assignment]  # given to `call_later`
        self._strangers = strangers
        #: The TCP port under which it is counted as a stranger; None: not counted.
        self._counted_port: int | None = None
        #: The client that it was admitted for; None: not admitted.
        self._admitted_as: str | None = None
        #: When the awaited body began, or the application resumed waiting for it; None: no body is awaited.
        self._body_since_s: float | None = None
        self._body_bytes = 0
        #: Since when incoming bytes are discarded; None: they are not.
        self._lingers_since_s: float | None = None
        #: When the awaited head began; None: no head is awaited.
        self._head_since_s: float | None = None
        self._head_bytes = 0
        #: The head that was just parsed offers another protocol, and must be parsed again without the offer.
        self._has_offer = False

    def is_too_slow(self, now_s: float) -> bool:
        """Whether the client exceeds the time for a head or body. `now_s`: by the loop's clock."""
        if self._lingers_since_s is not None:
            return now_s - self._lingers_since_s > LINGER_S
        if self._head_since_s is not None and now_s - self._head_since_s > HEAD_S:
            return True
        if self._body_since_s is not None and self.flow.read_paused:
            self._begin_body(now_s)  # the daemon is slow, not the client
        return self._body_since_s is not None and now_s - self._body_since_s > (
            BODY_S + self._body_bytes / BODY_BYTES_A_SECOND
        )

    def _begin_body(self, now_s: float) -> None:
        self._body_since_s = now_s
        self._body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self._head_since_s = self.loop.time()
        super().connection_made(cast(asyncio.Transport, _Transport(transport, self._linger)))
        self.app_state = {**self.app_state, PEER: Peer(transport), ADMIT: self._admit}
        port = self.server[1] if self.server is not None else None
        if port is None:
            # the control socket needs no token, and its file modes may have been lost
            if (uid := peer_uid(transport.get_extra_info("socket"))) not in (0, os.geteuid()):
                _foreign.warning(f"user {uid} connected to the control socket and was refused")
                transport.abort()
            return
        self._counted_port = port
        if not self._strangers.enter(port, self):
            _crowded.warning(
                f"too many clients without a token are connected to port {port}: silent ones are disconnected"
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_strangers()
        if self._admitted_as is not None:
            self._strangers.dismiss(self._admitted_as)
            self._admitted_as = None
        super().connection_lost(exc)

    def _admit(self, client: str) -> None:
        """Remove the connection from the strangers, unless its client already has too many."""
        if self._counted_port is not None and self._strangers.admit(client):
            self._admitted_as = client
            self._leave_strangers()

    def _leave_strangers(self) -> None:
        if self._counted_port is not None:
            self._strangers.leave(self._counted_port, self)
            self._counted_port = None

    def give_way(self) -> None:
        self._counted_port = None
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._counted_port is not None:
            self._strangers.hear(self._counted_port, self)
        if self._lingers_since_s is not None:
            return
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except HttpParserError:
            _no_http.warning("a client sent invalid HTTP")
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
        """Parse the head again without the offer, rebuilt from the parsed values; the body is unchanged."""
        self._has_offer = False
        method = self.parser.get_method()
        if method == b"CONNECT":
            raise HttpParserError("no tunnels here")
        lines = [b"%s %s HTTP/%s" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = _parser(self)  # the old parser accepts no more bytes if the head also says `close`
        self.parser.feed_data(b"\r\n".join(lines) + b"\r\n\r\n")

    # What the parser tells

    def on_message_begin(self) -> None:
        if self._head_since_s is None:  # only from the second request of the connection
            self._head_since_s = self.loop.time()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_since_s is not None:  # else it is a trailer after a body, which is ignored
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
        """End the connection after an answer that begins before the whole body has arrived.

        Send an answer's head and body in one write, because each write is a TLS record and a system call.
        """
        send, transport = cycle.send, cast(_Transport, self.transport)

        async def watched_send(message: Any) -> None:
            if message["type"] == "http.response.start":
                if has_body and cycle.more_body:
                    cycle.keep_alive = False  # the answer then has `Connection: close`
                transport.hold()
            await send(message)

        cycle.send = watched_send  # type: ignore[method-assign]  # of this cycle only

    # An unread body

    def _linger(self) -> bool:
        """Whether a closing connection first discards the rest of a body."""
        if self._lingers_since_s is not None or self._body_since_s is None or not self.transport.can_write_eof():
            return False
        self._lingers_since_s = self.loop.time()
        self.transport.write_eof()
        self.flow.resume_reading()
        return True

    def send_400_response(self, msg: str) -> None:
        """Answer 400, with the headers of every error."""
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
    """A transport that drops writes while the connection is closing.

    uvloop's transport raises, but uvicorn continues to answer a request that was followed by invalid HTTP or a
    disconnect.
    """

    def __init__(self, transport: asyncio.Transport, linger: Callable[[], bool]) -> None:
        """`linger`: called before closing; True: stay open for a moment, and count as closing."""
        self._transport = transport
        self._linger = linger
        self._lingers = False
        #: Whether the next write is delayed.
        self._holds = False
        self._held = b""

    def hold(self) -> None:
        """Delay the next write until another one follows, or until the loop's next iteration."""
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
            self._transport.abort()  # unread output may keep a closed connection open for long
        elif self._linger():
            self._lingers = True
        else:
            self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
