"""A slow network between runners and the trial listener, in which every tenth request fails in one of three ways.

It listens on the same port as the listener, at another loopback address.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from nni_manager.platform_kit.testing.middlebox import (
    HALF_ANSWER,
    LOST_ANSWER,
    LOST_REQUEST,
    Fault,
    Middlebox,
    middlebox,
)

#: The manager's address for runners.
ADDRESS = "127.0.0.2"
FAILURES = (LOST_REQUEST, LOST_ANSWER, HALF_ANSWER)
_EVERY = 10


@contextmanager
def bad_network(port: int, latency_s: float) -> Iterator[Middlebox]:
    """`port`: the listener's; `latency_s`: added to each request."""
    numbers = itertools.count(1)

    def choose(_route: str, _body: bytes) -> Fault | None:
        """The failure of every tenth request, each kind in turn."""
        number = next(numbers)
        return None if number % _EVERY else FAILURES[number // _EVERY % len(FAILURES)]

    with middlebox(port, choose, listen=(ADDRESS, port), latency_s=latency_s) as network:
        yield network


def free_port() -> int:
    """At both addresses."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        with socket.create_server((ADDRESS, port)):
            return port
