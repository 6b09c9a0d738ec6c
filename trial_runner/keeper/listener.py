"""The keeper's door: a Unix socket that only its user may open."""

import errno
import os
import socket
from typing import Callable, Optional, Tuple

from trial_runner.loop import Loop

#: What the kernel's address structure takes, without the final null.
MAX_PATH_BYTES = 107
_BACKLOG = 16
#: Seconds without accepting when descriptors have run out.
_PAUSE_S = 1.0


class Listener:
    """Calls `on_accept` with each new connection. Whoever opens it must hold the directory's lock."""

    def __init__(self, loop: Loop, path: str, on_accept: Callable[[socket.socket], None]) -> None:
        self._loop = loop
        self._path = path
        self._on_accept = on_accept
        self._socket: Optional[socket.socket] = None
        #: Which file is ours: one of another keeper may have taken its place.
        self._file: Optional[Tuple[int, int]] = None

    def open(self) -> None:
        """A file in its place is of a keeper that died, and goes. Raises OSError."""
        folder = os.path.dirname(self._path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.stat(folder).st_uid not in (0, os.geteuid()):
            raise OSError(
                errno.EPERM, "the socket's folder belongs to another user, who could put another in its place", folder
            )
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
        """Whether it is closed: not when somebody came at the last moment, who is accepted."""
        self._unlink_ours()
        last = self._accept()
        if last is None:
            self._close_socket()
            return True
        self.reopen()
        self._on_accept(last)
        return False

    def reopen(self) -> None:
        """Makes the file anew: it may have been removed, as folders of runtime files are at log-out. Raises OSError."""
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
            # The connection stays in the queue: watching on would turn in circles.
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
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass


def _file_at(path: str) -> Optional[Tuple[int, int]]:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_dev, state.st_ino
