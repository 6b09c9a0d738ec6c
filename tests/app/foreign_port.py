"""TCP ports that somebody else has, or has just let go."""

from __future__ import annotations

import random
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


#: Ports that the system gives to nobody who does not ask for them: those of outgoing connections are above.
_ASKED_FOR = range(18_000, 32_000)


def free_port() -> int:
    """A port that nobody has, nor is given by chance."""
    while True:
        try:
            with listening_at(_random.choice(_ASKED_FOR)) as port:
                return port
        except OSError:
            continue


#: The processes of a run of tests begin with one seed, and must not choose alike.
_random = random.SystemRandom()
