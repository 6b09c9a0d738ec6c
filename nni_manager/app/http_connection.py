"""One client's connection: uvicorn's, with a bound on how long and how large the head of a request may be.

uvicorn waits for the rest of a head for ever, and keeps all of it: a few clients that dribble would hold connections,
and one that sends header after header would hold memory. Bodies are bounded by the applications.

Some clients offer another protocol with each request (Java's and `curl --http2`: ``Upgrade: h2c``). A server may ignore
that. The parser does not: it ends the request at its head, so the head is given to it again without the offer.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Seconds for the head of a request, counted from its first byte, or from the connection when nothing comes.
HEAD_S = 30.0
#: Bytes of a head, and what may come with its end.
MAX_HEAD_BYTES = 64 * 1024


class HttpConnection(HttpToolsProtocol):
    """Parses with httptools; `server` closes those that are too slow."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        #: When the head that is awaited began; None while none is.
        self._head_since_s: float | None = None
        self._head_bytes = 0
        #: The head that was just parsed offers another protocol: nothing was made of it yet.
        self._has_offer = False

    def is_too_slow(self, now_s: float) -> bool:
        """`now_s`: of the loop's clock."""
        return self._head_since_s is not None and now_s - self._head_since_s > HEAD_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self._head_since_s = self.loop.time()
        super().connection_made(cast(asyncio.Transport, _Transport(transport)))

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
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

    def on_message_complete(self) -> None:
        if not self._has_offer:
            super().on_message_complete()


class _Transport:
    """What is written while the connection is being closed goes nowhere: uvloop's own raises, and uvicorn goes on
    answering a request behind which something came that is no HTTP, or whose sender has hung up."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
