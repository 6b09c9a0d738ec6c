"""Where a daemon is: a pointer file in its data directory names its control socket."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from pathlib import Path

#: In the data directory. Written by the daemon that owns it.
POINTER_FILE = "control.json"
#: Seconds within which a living daemon takes a connection; its backlog takes it even while it is busy.
_CONNECT_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One of a daemon's doors: a Unix socket, or a TCP port."""

    #: Path of the Unix socket; empty: TCP.
    socket: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    #: What the door wants to see; empty: nothing.
    token: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.socket or f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """What the pointer file says: ``{"socket": path, "pid": n, "version": "1.2.3"}``."""

    socket: str
    pid: int
    version: str


def find(data_directory: Path) -> Address | None:
    """The control socket of the daemon that owns `data_directory`; None when nobody answers there."""
    pointer = read_pointer(data_directory)
    return Address(socket=pointer.socket) if pointer is not None and _answers(pointer.socket) else None


def read_pointer(data_directory: Path) -> Pointer | None:
    """What the last daemon wrote, alive or not; None when there is nothing usable."""
    try:
        entry = json.loads((data_directory / POINTER_FILE).read_text())
        return Pointer(socket=str(entry["socket"]), pid=int(entry["pid"]), version=str(entry["version"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_TIMEOUT_S)
        try:
            probe.connect(path)
        except (OSError, ValueError):  # ValueError: a path with a null byte
            return False
    return True
