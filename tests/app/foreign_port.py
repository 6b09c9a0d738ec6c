"""TCP ports that another process has, or has just released."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def listening() -> Iterator[int]:
    """A port that another process has."""
    with listening_at(0) as port:
        yield port


@contextmanager
def listening_at(port: int) -> Iterator[int]:
    """Another process takes this port."""
    with socket.create_server(("127.0.0.1", port)) as other:
        yield other.getsockname()[1]


#: Ports below the range that the system uses for outgoing connections and port 0.
_ASKED_FOR = range(18_000, 32_000)


def free_port() -> int:
    """A free port that the system does not assign by itself."""
    while True:
        try:
            with listening_at(_random.choice(_ASKED_FOR)) as port:
                return port
        except OSError:
            continue


#: All processes of a test run start with the same seed, and must choose different ports.
_random = random.SystemRandom()
