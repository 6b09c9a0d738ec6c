"""The rate limit of an account, shared by all experiments on a connection."""

from __future__ import annotations

import asyncio


class Pacing:
    """A limit of `calls` in any `per_s` seconds, evenly spread after a first burst of `burst`; first come, first
    served.

    The service's own delays (Retry-After) apply to every experiment.
    """

    def __init__(self, *, calls: float, per_s: float, burst: int = 1) -> None:
        self._interval_s = per_s / calls
        self._burst = burst
        #: Time when the bucket would be full again.
        self._full_s = float("-inf")
        #: No call before this time.
        self._not_before_s = float("-inf")
        self._first = asyncio.Lock()

    async def turn(self) -> None:
        """Waits until one more call is allowed."""
        async with self._first:
            while (wait_s := self.reserve()) > 0:  # noqa: ASYNC110 (it is time itself that is waited for)
                await asyncio.sleep(wait_s)

    async def turn_within(self, patience_s: float) -> bool:
        """Waits at most `patience_s` seconds for a call. False: it would take longer, and no call is counted."""
        try:
            async with asyncio.timeout(patience_s):
                await self.turn()
        except TimeoutError:
            return False
        return True

    def wait_s(self) -> float:
        """Seconds until the next call is allowed; 0: now. Counts no call."""
        now = asyncio.get_running_loop().time()
        ahead_s = max(self._full_s, now) + self._interval_s - now - self._burst * self._interval_s
        return max(self._not_before_s - now, ahead_s if ahead_s > 1e-9 else 0.0, 0.0)

    def reserve(self) -> float:
        """Counts a call that is allowed now, and returns 0; otherwise the seconds to wait."""
        if (wait_s := self.wait_s()) > 0:
            return wait_s
        self._full_s = max(self._full_s, asyncio.get_running_loop().time()) + self._interval_s
        return 0.0

    def back_off(self, seconds: float) -> None:
        """Delays all calls by a number of seconds, as requested by the service."""
        self._not_before_s = max(self._not_before_s, asyncio.get_running_loop().time() + seconds)
