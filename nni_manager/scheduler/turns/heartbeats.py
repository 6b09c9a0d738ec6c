"""Signs of life of an experiment's runners. Nothing is stored: the next process begins anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

#: Whoever was silent for so long, in seconds, is news when it is heard again.
_LONG_S = 20.0
#: A loop that did not look for so long, in seconds, could not have heard anything: it looks twice as often at least.
_STALL_S = 60.0


class Heartbeats:
    """The moments at which an experiment's runners were last heard. `news`: called when one that was silent for long is
    heard again.
    """

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
        """Drops a job, whose attempt is decided."""
        self._heard_s.pop(job_name, None)

    def silence_s(self, job_name: str) -> float | None:
        """The seconds for which a job's runner was silent; None: nobody could be heard yet."""
        if self._since_s is None:
            return None
        return asyncio.get_running_loop().time() - self._heard_s.get(job_name, self._since_s)

    def silence_ms(self) -> tuple[int | None, Mapping[str, int]]:
        """(for how long runners could be heard; None: not yet), and by job how long it was silent. Milliseconds."""
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
