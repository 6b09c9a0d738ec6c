"""Heartbeats of an experiment's runners, in memory only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

#: Seconds of silence after which the next heartbeat of a runner wakes the loop.
_LONG_S = 20.0
#: Seconds between two turns above which the process was stalled; its own silence is then not counted.
_STALL_S = 60.0


class Heartbeats:
    """The last heartbeat of each runner. `news`: called when a runner is heard after a long silence."""

    def __init__(self, news: Callable[[], None]) -> None:
        self._news = news
        self._since_s: float | None = None
        self._looked_s = 0.0
        self._heard_s: dict[str, float] = {}

    def begin(self) -> None:
        """Starts counting, as the trial listener is open."""
        self._since_s = self._looked_s = asyncio.get_running_loop().time()

    def hear(self, job_name: str) -> None:
        """Notes a post of the job's runner."""
        now_s = asyncio.get_running_loop().time()
        last_s = self._heard_s.get(job_name, self._since_s)
        self._heard_s[job_name] = now_s
        if last_s is None or now_s - last_s > _LONG_S:
            self._news()

    def drop(self, job_name: str) -> None:
        """Removes a job."""
        self._heard_s.pop(job_name, None)

    def silence_s(self, job_name: str) -> float | None:
        """Seconds since the last heartbeat of a job's runner; None: not listening yet."""
        if self._since_s is None:
            return None
        return asyncio.get_running_loop().time() - self._heard_s.get(job_name, self._since_s)

    def silence_ms(self) -> tuple[int | None, Mapping[str, int]]:
        """(milliseconds of listening; None: not yet), and job → milliseconds since its last heartbeat."""
        if self._since_s is None:
            return None, {}
        now_s = asyncio.get_running_loop().time()
        self._discount_stall(now_s - self._looked_s)
        self._looked_s = now_s
        heard = {name: round(1000 * (now_s - heard_s)) for name, heard_s in self._heard_s.items()}
        return round(1000 * (now_s - self._since_s)), heard

    def _discount_stall(self, gap_s: float) -> None:
        if gap_s > _STALL_S and self._since_s is not None:
            self._since_s += gap_s
            self._heard_s = {name: heard_s + gap_s for name, heard_s in self._heard_s.items()}
