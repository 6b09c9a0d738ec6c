"""When a loop looks again: at once, in a moment together with what else happens by then, or when a time has come."""

from __future__ import annotations

import asyncio

#: Seconds for which news that no decision waits for is gathered: a job was accepted, a trial runs. A trial that is over
#: by then costs one turn and one commit instead of two, and many that start together do not have a turn each.
GATHER_S = 0.05


class Bell:
    """Rung from everywhere, heard by one; many rings while nobody listens are one."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None

    def ring(self) -> None:
        """Something happened; look at once."""
        self._rung.set()

    def ring_soon(self) -> None:
        """Something happened that can wait a moment for company."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(GATHER_S, self.ring)

    def answer(self) -> None:
        """From now on all is looked at that has happened until now."""
        self._rung.clear()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    async def wait(self, seconds: float) -> None:
        """Until it is rung, at most so long."""
        if seconds <= 0:
            return
        alarm = asyncio.get_running_loop().call_later(seconds, self.ring)
        try:
            await self._rung.wait()
        finally:
            alarm.cancel()
