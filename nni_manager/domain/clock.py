"""Time as an injectable function. Everything stored is whole milliseconds since the epoch, UTC."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Answers the wall clock in milliseconds since the epoch.
Clock = Callable[[], int]


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
