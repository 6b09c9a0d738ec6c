"""How often something was done, and how long it took altogether: what rates and averages are made from."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


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

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Around what is done; what raises is not counted."""
        began_s = time.perf_counter()
        yield
        self.add(time.perf_counter() - began_s)

    def read(self) -> tuple[int, float]:
        """How often, and seconds altogether."""
        with self._lock:
            return self._count, self._total_s
