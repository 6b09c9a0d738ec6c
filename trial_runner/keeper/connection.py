"""One peer on the keeper's socket: messages in, messages out, never waited for."""

import socket
from collections import deque
from typing import Any, Callable, Deque, Dict, List

from trial_runner import protocol
from trial_runner.loop import READ, WRITE, Loop

#: Larger ones would be asked of the kernel, and given back to it, for every message.
_RECEIVE_BYTES = 64 * 1024
#: Bytes unsent above which no further request is taken up: a peer that reads no answers must not fill our memory.
_MAX_UNSENT = 4 * 1024 * 1024

Message = Dict[str, Any]


class Connection:
    """Calls `on_message` for each message, `on_room` when some of what was unsent is gone, `on_close` once."""

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        self._loop = loop
        self._socket = sock
        self._socket.setblocking(False)
        self._decoder = protocol.Decoder()
        self._received: Deque[Message] = deque()
        self._buffer = bytearray()
        self._is_flush_due = False
        self._events = READ
        self.is_open = True
        self.on_message: Callable[[Message], None] = lambda message: None
        self.on_room: Callable[[], None] = lambda: None
        self.on_close: Callable[[str], None] = lambda reason: None
        self._loop.watch(sock.fileno(), self._on_ready)

    @property
    def unsent(self) -> int:
        """Bytes."""
        return len(self._buffer)

    def send(self, message: Message) -> None:
        """Quiet when it is closed. All that is sent in one turn of the loop leaves together."""
        if not self.is_open:
            return
        self._buffer += protocol.encode(message)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def close(self, reason: str) -> None:
        if self.is_open:
            self.is_open = False
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
            self._buffer.clear()
            self.on_close(reason)

    def refuse(self, sentence: str) -> None:
        """Answers what cannot be understood, and hangs up: where the next message begins is unknown."""
        error = {"kind": protocol.INVALID, "message": sentence}
        self.send({"id": None, "error": error})
        self._flush()
        self.close(sentence)

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if events & READ and self.is_open:
            self._receive()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.close("the connection broke: {}".format(error.strerror))
            return
        if not data:
            self.close("the peer hung up")
            return
        self._received.extend(self._decode(data))
        self._take_up()
        if self._received:
            self._watch()

    def _take_up(self) -> None:
        while self._received and self.is_open and self.unsent <= _MAX_UNSENT:
            self.on_message(self._received.popleft())

    def _decode(self, data: bytes) -> List[Message]:
        try:
            messages = self._decoder.feed(data)
        except protocol.FrameTooLarge as error:
            self.refuse("A message is too long: {}.".format(error))
        except (ValueError, RecursionError):
            self.refuse("A message is not JSON.")
        else:
            if all(isinstance(message, dict) for message in messages):
                return messages
            self.refuse("A message is not an object.")
        return []

    def _flush(self) -> None:
        self._is_flush_due = False
        if not self.is_open or not self._buffer:
            return
        try:
            sent = self._socket.send(self._buffer)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close("the connection broke: {}".format(error.strerror))
            return
        del self._buffer[:sent]
        self._take_up()
        self._watch()
        if sent:
            self.on_room()

    def _watch(self) -> None:
        may_receive = not self._received and self.unsent <= _MAX_UNSENT
        events = (WRITE if self._buffer else 0) | (READ if may_receive else 0)
        if self.is_open and events != self._events:
            self._events = events
            self._loop.watch(self._socket.fileno(), self._on_ready, events)
