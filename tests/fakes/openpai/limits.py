"""Rate limits: counters that restart after each window."""

from __future__ import annotations

from collections.abc import Callable

#: Limits of the deployment: kind of call → number of calls, window in seconds.
DEPLOYED = {"all": (600, 60), "list": (120, 60), "submit": (3600, 3600)}


class Limits:
    """Limits by kind of call: `all` counts by address, the others by user."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.windows: dict[str, tuple[float, float]] = dict(DEPLOYED)
        self._counts: dict[tuple[str, str], tuple[float, int]] = {}

    def refuses(self, kind: str, caller: str) -> float:
        """Seconds to wait (the length of the window) if this call exceeds the limit; else 0."""
        most, window_s = self.windows[kind]
        began, count = self._counts.get((kind, caller), (self._now(), 0))
        if self._now() - began >= window_s:
            began, count = self._now(), 0
        self._counts[kind, caller] = began, count + 1
        return window_s if count + 1 > most else 0
