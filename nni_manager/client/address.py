"""The address of a daemon: the control socket that the pointer file in its data directory names, or a URL.

A connection to a control socket is refused unless the expected user owns it: another user may take over a socket's
path, as below /tmp after a reboot, and requests contain secrets.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from nni_manager.client.data_directory import is_taken
from nni_manager.domain.errors import InvalidInput

#: In the data directory. Written by the daemon that owns it.
POINTER_FILE = "control.json"
#: Seconds within which a live daemon accepts a connection; its backlog accepts even while it is busy.
_CONNECT_TIMEOUT_S = 2.0
#: Default port by scheme.
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One of a daemon's listeners: a Unix socket, or a TCP port."""

    #: Path of the Unix socket; empty: TCP.
    socket: str = ""
    #: User id of its daemon.
    owner: int = field(default_factory=os.geteuid)
    scheme: str = "http"
    host: str = "127.0.0.1"
    port: int = 0
    #: Prefix of every path, for a proxy: empty, or such as ``/lab/nni``.
    prefix: str = ""
    #: Token that the listener requires; empty: none.
    token: str = field(default="", repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.socket or f"{self.scheme}://{host}:{self.port}{self.prefix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """The content of the pointer file: ``{"socket": path, "pid": n, "version": "1.2.3"}``."""

    socket: str
    pid: int
    version: str


def parse_url(url: str, token: str = "") -> Address:
    """The TCP listener at ``http://host:port``; https and a path prefix are possible.

    Raises InvalidInput.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise _no_address(url, str(error)) from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise _no_address(url, "it is not a URL")
    if parts.username is not None or parts.query or parts.fragment:
        raise _no_address(f"{parts.scheme}://{parts.hostname}", "it contains more than host, port and path")
    return Address(
        scheme=parts.scheme,
        host=parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        prefix=parts.path.rstrip("/"),
        token=token,
    )


def find(data_directory: Path) -> Address | None:
    """The control socket of the daemon that owns the data directory; None without answer, or if it is another user's.

    Root may use any user's daemon; that user is the owner of the pointer file. In a copy of the directory, the pointer
    names the original's daemon, which does not hold the copy's lock.
    """
    pointer = read_pointer(data_directory)
    if pointer is None:
        return None
    address = Address(socket=pointer.socket, owner=_owner(data_directory))
    return address if is_taken(data_directory) and _answers(address) else None


def read_pointer(data_directory: Path) -> Pointer | None:
    """The pointer of the last daemon, which may be dead; None if it is missing or unreadable."""
    try:
        entry = json.loads((data_directory / POINTER_FILE).read_text(encoding="utf-8"))
        return Pointer(socket=str(entry["socket"]), pid=int(entry["pid"]), version=str(entry["version"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _no_address(url: str, reason: str) -> InvalidInput:
    return InvalidInput(f"{url!r} is not the address of a manager ({reason}); write, for example, http://gpu-box:8080")


def _owner(data_directory: Path) -> int:
    if (uid := os.geteuid()) != 0:
        return uid
    with suppress(OSError):
        return os.lstat(data_directory / POINTER_FILE).st_uid
    return uid


def _answers(address: Address) -> bool:
    try:
        connect_to(address.socket, address.owner, _CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError):  # ValueError: a path with a null byte
        return False
    return True


#: Process id, user id, group id (linux/socket.h).
_CREDENTIALS = struct.Struct("=iII")


def connect_to(path: str, owner: int, timeout_s: float | None) -> socket.socket:
    """A connection to the socket at `path`. `owner`: user id of its folder, its file and the listening process.

    Raises PermissionError for another user's, OSError; ValueError for a path with a null byte.
    """
    _check_files(path, owner)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(timeout_s)
        connected.connect(path)
        if (uid := peer_uid(connected)) != owner:
            raise PermissionError(f"the process that listens on {path} belongs to user {uid}, not to {owner}")
    except BaseException:
        connected.close()
        raise
    return connected


def peer_uid(connected: socket.socket) -> int:
    """The user id of the process at the other end of a Unix socket, at the time it connected or began to listen."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def _check_files(path: str, owner: int) -> None:
    """Raise PermissionError unless `path` is a socket in a folder that only `owner` can write. Links are refused."""
    folder, file = os.lstat(os.path.dirname(path)), os.lstat(path)
    if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != owner or folder.st_mode & 0o022:
        raise PermissionError(f"{os.path.dirname(path)} is not a folder that only user {owner} may write")
    if not stat.S_ISSOCK(file.st_mode) or file.st_uid != owner:
        raise PermissionError(f"{path} is not a socket of user {owner}")
