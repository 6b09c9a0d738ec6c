"""A channel of an SSH connection: first a conversation in lines, then the transport of a keeper's client."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import asyncssh

#: Number of bytes before the mark that are kept, for the message if the mark never comes.
_KEPT_BYTES = 2048
#: Maximum bytes of a line, and of a login shell's output before the mark; a mark is never longer than the third.
_MOST_IN_LINE = 4 * 1024 * 1024
_MOST_BEFORE_MARK = 16 * 1024 * 1024
_LONGEST_MARK = 256


class Channel(asyncssh.SSHClientSession[bytes]):
    """The session of one SSH channel: its output, read in pieces until a protocol takes over."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._news = asyncio.Event()
        self._protocol: asyncio.Protocol | None = None
        self._transport: ChannelTransport | None = None
        self.channel: asyncssh.SSHClientChannel[bytes]
        self.stderr = bytearray()
        self.exit_status: int | None = None
        #: Why it ended; None while it is open.
        self.end: str | None = None

    # Callbacks of asyncssh

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self.channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if datatype is not None:
            self.stderr = (self.stderr + data)[-_KEPT_BYTES:]
        elif self._protocol is not None:
            self._protocol.data_received(data)
        else:
            self._received += data
            self._news.set()

    def exit_status_received(self, status: int) -> None:
        self.exit_status = status

    def connection_lost(self, exc: Exception | None) -> None:
        self.end = str(exc) if exc is not None else self._last_words()
        self._news.set()
        if self._transport is not None:
            self._transport.close()  # the connection would stay open without a user
        if self._protocol is not None:
            self._protocol.connection_lost(exc or ConnectionError(self.end))

    # The conversation

    async def until(self, mark: re.Pattern[bytes]) -> re.Match[bytes]:
        """Drops everything up to the end of the mark, as a login shell may print much before it. Raises EOFError, also
        if the output does not end."""
        dropped = 0
        while (found := mark.search(self._received)) is None:
            if (waste := len(self._received) - _LONGEST_MARK) > 0:
                dropped += waste
                del self._received[:waste]
            self._require(dropped, _MOST_BEFORE_MARK)
            await self._more()
        found = mark.search(bytes(self._received))  # a copy, as the match refers to it
        assert found is not None, "just found"
        del self._received[: found.end()]
        return found

    async def line(self) -> bytes:
        """The next line, without its end. Raises EOFError."""
        while (end := self._received.find(b"\n")) < 0:
            self._require(len(self._received), _MOST_IN_LINE)
            await self._more()
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def _require(self, size: int, most: int) -> None:
        """Ends the channel if it received more than our programs ever send. Raises EOFError."""
        if size > most:
            self.channel.abort()
            self._received.clear()
            raise EOFError(f"it sent more than {most // 2**20} MiB instead of a short line")

    async def _more(self) -> None:
        if self.end is not None:
            raise EOFError(self.end)
        self._news.clear()
        await self._news.wait()

    def hand_over(self, protocol: asyncio.Protocol, connection: asyncssh.SSHClientConnection) -> ChannelTransport:
        """A transport for a protocol that takes over from here. Raises EOFError if the channel has ended."""
        if self.end is not None:
            raise EOFError(self.end)
        transport = self._transport = ChannelTransport(self.channel, connection, protocol)
        protocol.connection_made(transport)
        self._protocol = protocol
        if self._received:
            data, self._received = bytes(self._received), bytearray()
            protocol.data_received(data)
        return transport

    def _last_words(self) -> str:
        words = (self.stderr or self._received[-_KEPT_BYTES:]).decode(errors="replace").strip()
        status = f"it ended with status {self.exit_status}" if self.exit_status is not None else "it ended"
        return f"{status}: {' '.join(words.split())[-400:]}" if words else status


class ChannelTransport(asyncio.Transport):
    """The transport of a connection with one channel, which ends with it."""

    def __init__(
        self,
        channel: asyncssh.SSHClientChannel[bytes],
        connection: asyncssh.SSHClientConnection,
        protocol: asyncio.Protocol,
    ) -> None:
        super().__init__()
        self._channel = channel
        self._connection = connection
        self._protocol = protocol
        self._is_reading = True
        self._is_closing = False

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def write(self, data: Any) -> None:
        if not self._is_closing and not self._channel.is_closing():
            self._channel.write(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self._channel.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._is_reading = False
        self._channel.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading = True
        self._channel.resume_reading()

    def is_reading(self) -> bool:
        return self._is_reading

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        self._channel.close()
        self._connection.close()

    def abort(self) -> None:
        self._is_closing = True
        self._channel.abort()
        self._connection.abort()
