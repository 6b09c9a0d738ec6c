"""The keeper's socket: its listener, and the connection of one peer, with non-blocking messages."""

import errno
import os
import socket
from collections import deque
from contextlib import suppress
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from trial_runner import protocol
from trial_runner.loop import READ, WRITE, Loop, Timer

#: Larger buffers would be requested from the kernel and returned for every message.
_RECEIVE_BYTES = 64 * 1024
#: Unsent bytes above which no request is read: a peer that reads no answers must not fill our memory.
_MAX_UNSENT = 4 * 1024 * 1024

#: Seconds that a message may wait for another: the end of a short job is sent together with its start.
LATE_S = 0.05

Message = Dict[str, Any]


class Connection:
    """Calls `on_message` for each message, `on_room` when unsent data decreases, `on_close` once."""

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        self._loop = loop
        self._socket = sock
        self._socket.setblocking(False)
        self._decoder = protocol.Decoder()
        self._received: Deque[Message] = deque()
        self._buffer = bytearray()
        self._is_flush_due = False
        #: Messages that wait for another one, and until when.
        self._late: List[Callable[[], Message]] = []
        self._late_timer: Optional[Timer] = None
        self._events = READ
        self.is_open = True
        self.on_message: Callable[[Message], None] = lambda message: None
        self.on_room: Callable[[], None] = lambda: None
        self.on_close: Callable[[str], None] = lambda reason: None
        self._loop.watch(sock.fileno(), self._on_ready)

    @property
    def unsent(self) -> int:
        """The number of bytes that wait to be sent."""
        return len(self._buffer)

    def send(self, message: Message) -> None:
        """Sends a message; ignored when closed. Messages of one turn of the loop are sent together."""
        if not self.is_open:
            return
        self._take_late()
        self._buffer += protocol.encode(message)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def send_late(self, make: Callable[[], Message]) -> None:
        """Sends a message, created at that time, with the next one or alone after a moment: ends until then wake the
        peer once."""
        if not self.is_open:
            return
        self._late.append(make)
        if self._late_timer is None:
            self._late_timer = self._loop.call_later(LATE_S, self._flush)

    def _take_late(self) -> None:
        for make in self._late:
            self._buffer += protocol.encode(make())
        self._late.clear()
        if self._late_timer is not None:
            self._late_timer.cancel()
            self._late_timer = None

    def close(self, reason: str) -> None:
        if self.is_open:
            self.is_open = False
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
            self._late.clear()
            self._buffer.clear()
            self.on_close(reason)

    def refuse(self, sentence: str) -> None:
        """Answers an invalid message and hangs up: the start of the next message is unknown."""
        self.send({"id": None, "error": {"kind": protocol.INVALID, "message": sentence}})
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
        self._take_late()
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


#: Maximum length in the kernel's address structure, without the final null.
MAX_PATH_BYTES = 107
_BACKLOG = 16
#: Seconds without accepting when descriptors have run out.
_PAUSE_S = 1.0


class Listener:
    """Calls `on_accept` with each new connection. The process must hold the directory's lock."""

    def __init__(self, loop: Loop, path: str, on_accept: Callable[[socket.socket], None]) -> None:
        self._loop = loop
        self._path = path
        self._on_accept = on_accept
        self._socket: Optional[socket.socket] = None
        #: Identity of our file: another keeper's file may have replaced it.
        self._file: Optional[Tuple[int, int]] = None

    def open(self) -> None:
        """Opens it. An existing file belongs to a dead keeper and is removed. Raises OSError."""
        folder = os.path.dirname(self._path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.stat(folder).st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, "the socket's folder belongs to another user, who could replace it", folder)
        self._unlink()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.bind(self._path)
        os.chmod(self._path, 0o600)
        self._file = _file_at(self._path)
        self._socket.listen(_BACKLOG)
        self._watch()

    def close(self) -> None:
        self._unlink_ours()
        self._close_socket()

    def close_unless_asked(self) -> bool:
        """Closes it, unless a connection arrived in the last moment and is accepted; returns whether it is closed."""
        self._unlink_ours()
        last = self._accept()
        if last is None:
            self._close_socket()
            return True
        self.reopen()
        self._on_accept(last)
        return False

    def reopen(self) -> None:
        """Recreates the file: logging out removes folders of runtime files. Raises OSError."""
        self._close_socket()
        self.open()

    def _watch(self) -> None:
        if self._socket is not None:
            self._loop.watch(self._socket.fileno(), lambda _: self._on_ready())

    def _on_ready(self) -> None:
        accepted = self._accept()
        if accepted is not None:
            self._on_accept(accepted)

    def _accept(self) -> Optional[socket.socket]:
        if self._socket is None:
            return None
        try:
            return self._socket.accept()[0]
        except (BlockingIOError, ConnectionError):
            return None
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            # the connection stays queued: watching would loop without pause
            self._loop.unwatch(self._socket.fileno())
            self._loop.call_later(_PAUSE_S, self._watch)
            return None

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _unlink_ours(self) -> None:
        if self._file is not None and self._file == _file_at(self._path):
            self._unlink()
        self._file = None

    def _unlink(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._path)


def _file_at(path: str) -> Optional[Tuple[int, int]]:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_dev, state.st_ino
