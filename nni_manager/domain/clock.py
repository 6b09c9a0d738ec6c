"""Clocks as injectable functions, and durations. Everything stored is whole milliseconds since the epoch, UTC."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime

#: Returns the wall clock in milliseconds since the epoch.
Clock = Callable[[], int]

#: Milliseconds that two clocks may drift apart without having been set.
_UNEVEN_MS = 1000
#: Milliseconds within which two readings count as simultaneous.
_ONE_MOMENT_MS = 1


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Milliseconds since the machine started, including sleep; unlike the wall clock, it is never set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def apart_ms(wall: Clock = now_ms, steady: Clock = steady_ms) -> int:
    """Wall clock minus steady clock, in milliseconds. Reads again when the process was suspended between the two."""
    while True:
        before_ms = steady()
        found_ms = wall() - before_ms
        if steady() - before_ms <= _ONE_MOMENT_MS:
            return found_ms


def milliseconds(text: object) -> int | None:
    """A time such as ``2021-01-12T14:35:01Z`` as milliseconds since the epoch; None: malformed or missing."""
    try:
        return round(datetime.fromisoformat(text if isinstance(text, str) else "").timestamp() * 1000)
    except ValueError:
        return None


class ClockSteps:
    """Detects that the wall clock was set, by comparison with the steady clock."""

    def __init__(self, wall: Clock, steady: Clock = steady_ms) -> None:
        self._wall = wall
        self._steady = steady
        self._apart_ms = wall() - steady()

    @property
    def not_told_yet(self) -> int:
        """The step that `since_last_look` would return now, in milliseconds, without consuming it."""
        return self._look()[0]

    def since_last_look(self) -> int:
        """Milliseconds by which the wall clock was set forward, or back (negative)."""
        step_ms, self._apart_ms = self._look()
        return step_ms

    def _look(self) -> tuple[int, int]:
        """(the step, the new distance of the clocks), in milliseconds."""
        before_ms = self._steady()
        apart_ms = self._wall() - before_ms
        step_ms = apart_ms - self._apart_ms
        if abs(step_ms) < _UNEVEN_MS or self._steady() - before_ms >= _UNEVEN_MS:  # suspended between two readings
            return 0, self._apart_ms
        return step_ms, apart_ms


class Durations:
    """A growing number of durations and their sum. Any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._total_s = 0.0

    def add(self, seconds: float) -> None:
        with self._lock:
            self._count += 1
            self._total_s += seconds

    def measured(self) -> _Measured:
        """A context that adds the duration of its block; a block that raises is not counted."""
        return _Measured(self)

    def read(self) -> tuple[int, float]:
        """The number of durations, and their sum in seconds."""
        with self._lock:
            return self._count, self._total_s


class _Measured:
    """A context that measures; a class, because a generator would cost more than the measured work."""

    __slots__ = ("_began_s", "_durations")

    def __init__(self, durations: Durations) -> None:
        self._durations = durations

    def __enter__(self) -> None:
        self._began_s = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._durations.add(time.perf_counter() - self._began_s)


#: Ticks that `worst_s` covers; there is one per second.
_TICKS = 60


class LoopLag:
    """The delay of the event loop, from a ticker on the loop that calls `note`."""

    def __init__(self) -> None:
        self.all = Durations()
        self._latest: deque[float] = deque(maxlen=_TICKS)

    def note(self, late_s: float) -> None:
        """Note a tick that is `late_s` seconds late."""
        late_s = max(0.0, late_s)
        self.all.add(late_s)
        self._latest.append(late_s)

    @property
    def worst_s(self) -> float:
        """The longest delay of the last minute, in seconds."""
        return max(self._latest, default=0.0)
