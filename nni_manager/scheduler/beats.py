"""When each job's runner was last heard: the only sign of life of a container that no platform tells of.

In memory, and by a clock that nobody sets and that stands still while the machine sleeps: a daemon that comes back
counts from then on. What follows from silence, the plan decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

#: Whoever was silent for so long, in seconds, is news when it is heard again.
_LONG_S = 20.0
#: A loop that did not look for so long, in seconds, could not have heard anything: it looks twice as often at least.
_STALL_S = 60.0


class Beats:
    """Of one experiment. `news`: somebody who was not heard for long is heard again."""

    def __init__(self, news: Callable[[], None]) -> None:
        self._news = news
        self._since_s: float | None = None
        self._looked_s = 0.0
        self._heard_s: dict[str, float] = {}

    def begin(self) -> None:
        """Runners can be heard from now on."""
        self._since_s = self._looked_s = asyncio.get_running_loop().time()

    def hear(self, job_name: str) -> None:
        """Any post of its runner."""
        now_s = asyncio.get_running_loop().time()
        last_s = self._heard_s.get(job_name, self._since_s)
        self._heard_s[job_name] = now_s
        if last_s is None or now_s - last_s > _LONG_S:
            self._news()

    def drop(self, job_name: str) -> None:
        """Its attempt is decided."""
        self._heard_s.pop(job_name, None)

    def silence_ms(self) -> tuple[int | None, Mapping[str, int]]:
        """(for how long runners could be heard; None: not yet), and by job how long it was silent. Milliseconds."""
        if self._since_s is None:
            return None, {}
        now_s = asyncio.get_running_loop().time()
        self._forgive(now_s - self._looked_s)
        self._looked_s = now_s
        heard = {name: round(1000 * (now_s - heard_s)) for name, heard_s in self._heard_s.items()}
        return round(1000 * (now_s - self._since_s)), heard

    def _forgive(self, gap_s: float) -> None:
        if gap_s > _STALL_S and self._since_s is not None:
            self._since_s += gap_s
            self._heard_s = {name: heard_s + gap_s for name, heard_s in self._heard_s.items()}
