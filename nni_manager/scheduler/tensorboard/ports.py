"""Ports of TensorBoards, and whether anybody looks at one."""

from __future__ import annotations

import socket
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from nni_manager.domain.errors import Conflict
from nni_manager.scheduler.tensorboard.board import HOST

FIRST, _COUNT = 6006, 200
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"


def free(taken: Collection[int], wanted: int | None = None) -> int:
    """The wanted port, else the first free one from 6006 on. Raises Conflict."""
    if wanted is not None:
        if wanted in taken or not is_free(wanted):
            raise Conflict(f"port {wanted} is taken; name another one, or none")
        return wanted
    for port in range(FIRST, FIRST + _COUNT):
        if port not in taken and is_free(port):
            return port
    raise Conflict(f"the ports from {FIRST} to {FIRST + _COUNT - 1} are taken; stop a TensorBoard")


def is_free(port: int) -> bool:
    """Whether a program could listen on it now."""
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        return True
    return False


def connected() -> set[int]:
    """Local ports with a connection, or one that ended within the last minute, by the kernel's table."""
    found: set[int] = set()
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text(encoding="ascii").splitlines()[1:]:
                _, local, other, state, *_ = line.split()
                if state != _LISTENS:  # both ends: on one machine the browser's end may be the one that is left
                    found |= {int(end.rpartition(":")[2], 16) for end in (local, other)}
    return found
