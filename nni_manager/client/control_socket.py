"""Connections to a control socket, refused unless the expected user owns it.

Another user may take over a socket's path, as below /tmp after a reboot, and requests contain secrets.
"""

from __future__ import annotations

import os
import socket
import stat
import struct

#: Process id, user id, group id (linux/socket.h).
_CREDENTIALS = struct.Struct("=iII")


def connect(path: str, owner: int, timeout_s: float | None) -> socket.socket:
    """A connection to the socket at `path`. `owner`: user id of its folder, its file and the listening process.

    Raises PermissionError for another user's, OSError; ValueError for a path with a null byte.
    """
    _check_files(path, owner)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(timeout_s)
        connected.connect(path)
        if (uid := peer_uid(connected)) != owner:
            raise PermissionError(f"the process that listens on {path} belongs to user {uid}, and not to {owner}")
    except BaseException:
        connected.close()
        raise
    return connected


def peer_uid(connected: socket.socket) -> int:
    """The user id of the process at the other end of a Unix socket, at the time it connected or began to listen."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(raw)[1]
    return uid


def _check_files(path: str, owner: int) -> None:
    """Raises PermissionError unless `path` is a socket in a folder that only `owner` can write; links are refused."""
    folder, file = os.lstat(os.path.dirname(path)), os.lstat(path)
    if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != owner or folder.st_mode & 0o022:
        raise PermissionError(f"{os.path.dirname(path)} is no folder that user {owner} alone may write")
    if not stat.S_ISSOCK(file.st_mode) or file.st_uid != owner:
        raise PermissionError(f"{path} is no socket of user {owner}")
