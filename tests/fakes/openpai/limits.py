"""Calls counted as express-rate-limit does: so many in a window that begins with the first."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Limit:
    """`most` calls in `window_s`."""

    most: int
    window_s: float
    clock: Callable[[], float]
    _windows: dict[str, tuple[float, int]] = field(default_factory=dict)

    def count(self, who: str) -> float | None:
        """None: it may be made. Else: seconds until it may."""
        now = self.clock()
        begun, calls = self._windows.get(who, (now, 0))
        if now >= begun + self.window_s:
            begun, calls = now, 0
        self._windows[who] = begun, calls + 1
        return None if calls < self.most else math.ceil(begun + self.window_s - now)


def limits(clock: Callable[[], float]) -> dict[str, Limit]:
    """Of the shipped service configuration."""
    return {
        "all": Limit(600, 60, clock),
        "list": Limit(120, 60, clock),
        "submit": Limit(3600, 3600, clock),
    }
