"""Connections to a control socket: to nobody but the user whose daemon it is.

A socket's path may come to be another user's, as below /tmp after a restart of the machine; what that user would be
sent has secrets in it.
"""

from __future__ import annotations

import os
import socket
import stat
import struct

#: Process id, user id, group id (linux/socket.h).
_CREDENTIALS = struct.Struct("=iII")


def connect(path: str, owner: int, timeout_s: float | None) -> socket.socket:
    """A connection to the socket at `path`. `owner`: the user id that its folder, its file and who listens must have.

    Raises OSError, PermissionError for another user's; ValueError for a path with a null byte.
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
    """The user id of the process at the other end of a Unix socket, as it was when it connected or began to listen."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(raw)[1]
    return uid


def _check_files(path: str, owner: int) -> None:
    """A symbolic link is neither."""
    folder, file = os.lstat(os.path.dirname(path)), os.lstat(path)
    if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != owner or folder.st_mode & 0o022:
        raise PermissionError(f"{os.path.dirname(path)} is no folder that user {owner} alone may write")
    if not stat.S_ISSOCK(file.st_mode) or file.st_uid != owner:
        raise PermissionError(f"{path} is no socket of user {owner}")
