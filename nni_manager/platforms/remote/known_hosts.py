"""Keys of machines, and those that ``~/.ssh/known_hosts`` has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

import asyncssh

from nni_manager.platforms.remote.address import DEFAULT_PORT

_FOLDER = "~/.ssh"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    """The key that a machine has shown."""

    #: The host and port as `known_hosts` has them.
    place: str
    fingerprint: str
    #: Algorithm and key, as `known_hosts` has them.
    text: str

    @classmethod
    def of(cls, key: asyncssh.SSHKey, host: str, port: int) -> Self:
        text = " ".join(key.export_public_key().decode().split()[:2])
        return cls(place=place_of(host, port), fingerprint=key.get_fingerprint(), text=text)


def place_of(host: str, port: int) -> str:
    """The host and port as `known_hosts` has them."""
    return host if port == DEFAULT_PORT else f"[{host}]:{port}"


def remember(key: HostKey) -> None:
    """Writes a key into `known_hosts`, as `ssh` does. Raises OSError."""
    folder = os.path.expanduser(_FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    file = os.open(f"{folder}/known_hosts", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(file, "r+b") as known:
        begin = b"" if _ends_a_line(known.fileno()) else b"\n"
        known.write(begin + f"{key.place} {key.text}\n".encode())


def is_known(host: str, port: int) -> bool:
    """Whether `known_hosts` has any key of a host."""
    try:
        hosts = asyncssh.read_known_hosts(os.path.expanduser(f"{_FOLDER}/known_hosts"))
        return any(hosts.match(host, "", port)[:2])
    except (OSError, ValueError):
        return False


def _ends_a_line(file: int) -> bool:
    size = os.fstat(file).st_size
    return size == 0 or os.pread(file, 1, size - 1) == b"\n"
