"""Clocks as injectable functions, and durations. Everything stored is whole milliseconds since the epoch, UTC."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

#: Answers the wall clock in milliseconds since the epoch.
Clock = Callable[[], int]

#: Milliseconds by which two clocks go apart for reasons of their own.
_UNEVEN_MS = 1000
#: Milliseconds within which two clocks are read at one moment.
_ONE_MOMENT_MS = 1


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """A clock that nobody sets, in milliseconds since the machine started; it goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def apart_ms(wall: Clock = now_ms, steady: Clock = steady_ms) -> int:
    """The wall clock less the steady one, both read at one moment: again, where the process had to wait in between."""
    while True:
        before_ms = steady()
        found_ms = wall() - before_ms
        if steady() - before_ms <= _ONE_MOMENT_MS:
            return found_ms


class ClockSteps:
    """Tells when the wall clock was set, by the steady one."""

    def __init__(self, wall: Clock, steady: Clock = steady_ms) -> None:
        self._wall = wall
        self._steady = steady
        self._apart_ms = wall() - steady()

    @property
    def not_told_yet(self) -> int:
        """What `since_last_look` would answer now, in milliseconds; it still will."""
        return self._look()[0]

    def since_last_look(self) -> int:
        """Milliseconds by which the wall clock was set forward, or back (negative)."""
        step_ms, self._apart_ms = self._look()
        return step_ms

    def _look(self) -> tuple[int, int]:
        """(the step, milliseconds that the clocks are apart for what is told of it)."""
        before_ms = self._steady()
        apart_ms = self._wall() - before_ms
        step_ms = apart_ms - self._apart_ms
        if abs(step_ms) < _UNEVEN_MS or self._steady() - before_ms >= _UNEVEN_MS:  # not scheduled between two looks
            return 0, self._apart_ms
        return step_ms, apart_ms


class Durations:
    """A number of durations and their sum, which only grow. Any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._total_s = 0.0

    def add(self, seconds: float) -> None:
        with self._lock:
            self._count += 1
            self._total_s += seconds

    def measured(self) -> _Measured:
        """Around what is done; what raises is not counted."""
        return _Measured(self)

    def read(self) -> tuple[int, float]:
        """The number of durations, and their sum in seconds."""
        with self._lock:
            return self._count, self._total_s


class _Measured:
    """A context that measures; no generator, which would cost more than what it does here."""

    __slots__ = ("_began_s", "_durations")

    def __init__(self, durations: Durations) -> None:
        self._durations = durations

    def __enter__(self) -> None:
        self._began_s = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._durations.add(time.perf_counter() - self._began_s)


#: Ticks that `worst_s` looks back on; there is one a second.
_TICKS = 60


class LoopLag:
    """Told by whoever has a clock that ticks on the loop."""

    def __init__(self) -> None:
        self.all = Durations()
        self._latest: deque[float] = deque(maxlen=_TICKS)

    def note(self, late_s: float) -> None:
        """A tick came `late_s` seconds after its time."""
        late_s = max(0.0, late_s)
        self.all.add(late_s)
        self._latest.append(late_s)

    @property
    def worst_s(self) -> float:
        """The longest of the last minute, in seconds."""
        return max(self._latest, default=0.0)
