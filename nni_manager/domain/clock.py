"""Time as an injectable function. Everything stored is whole milliseconds since the epoch, UTC."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Answers the wall clock in milliseconds since the epoch.
Clock = Callable[[], int]

#: Milliseconds by which two clocks go apart for reasons of their own.
_UNEVEN_MS = 1000


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """A clock that nobody sets, in milliseconds since the machine started; it goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class ClockSteps:
    """Tells when the wall clock was set, by the steady one."""

    def __init__(self, wall: Clock, steady: Clock = steady_ms) -> None:
        self._wall = wall
        self._steady = steady
        self._apart_ms = wall() - steady()

    def since_last_look(self) -> int:
        """Milliseconds by which the wall clock was set forward, or back (negative)."""
        before_ms = self._steady()
        apart_ms = self._wall() - before_ms
        step_ms = apart_ms - self._apart_ms
        if abs(step_ms) < _UNEVEN_MS or self._steady() - before_ms >= _UNEVEN_MS:  # not scheduled between two looks
            return 0
        self._apart_ms = apart_ms
        return step_ms
