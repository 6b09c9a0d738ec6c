"""Rate limits of Resource Manager: token buckets, initially full, refilled at a constant rate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(kw_only=True)
class Bucket:
    most: float
    a_second: float
    _has: float = -1.0
    _since_s: float = 0.0

    def take(self, now_s: float) -> bool:
        """Take a token; False: the bucket is empty."""
        filled = self._has + (now_s - self._since_s) * self.a_second
        self._has, self._since_s = (self.most if self._has < 0 else min(self.most, filled)), now_s
        if self._has < 1:
            return False
        self._has -= 1
        return True


class Limits:
    """Documented limits of one caller in a subscription."""

    def __init__(self) -> None:
        self.reads, self.writes = Bucket(most=250, a_second=25), Bucket(most=200, a_second=10)

    def allow(self, method: str, now_s: float) -> bool:
        return (self.reads if method == "GET" else self.writes).take(now_s)
