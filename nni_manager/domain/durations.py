"""How often something was done, and how long it took altogether: what rates and averages are made from."""

from __future__ import annotations

import threading
import time


class Durations:
    """Only ever grows. Any thread may add."""

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
        """How often, and seconds altogether."""
        with self._lock:
            return self._count, self._total_s


class _Measured:
    """No generator, which would cost more than what it does here."""

    __slots__ = ("_began_s", "_durations")

    def __init__(self, durations: Durations) -> None:
        self._durations = durations

    def __enter__(self) -> None:
        self._began_s = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._durations.add(time.perf_counter() - self._began_s)
