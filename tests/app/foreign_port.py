"""TCP ports that somebody else has, or has just let go."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def listening() -> Iterator[int]:
    """A port that somebody else has."""
    with listening_at(0) as port:
        yield port


@contextmanager
def listening_at(port: int) -> Iterator[int]:
    """Somebody else has this port."""
    with socket.create_server(("127.0.0.1", port)) as other:
        yield other.getsockname()[1]


def free_port() -> int:
    """A port that nobody has at the moment."""
    with listening() as port:
        return port
