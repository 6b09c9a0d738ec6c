"""Ends jobs: at once on request, and after a delay where they should end by themselves.

A job ends a moment after its runner's last report; stopped in that moment, the console would show it as stopped. So it
is stopped only if it still runs after a while. A stop that the service refuses is repeated as long as the list has the
job; a refusal for one job does not affect others.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from nni_manager.domain.clock import Clock
from nni_manager.platforms.dlc import states
from nni_manager.platforms.dlc.account import DlcClient, DlcRefused, Item
from nni_manager.web_services.jobs import all_of

log = logging.getLogger(__name__)

#: Milliseconds that a job has for its own end, and that the service has for carrying out a stop before it is repeated.
_OWN_END_MS = 60_000
_REPEAT_MS = 30_000
#: Refused stops of a job that no list has, after which there is no such job.
_MOST_REFUSALS = 3

Ask = Callable[[Callable[[DlcClient], Awaitable[Any]]], Awaitable[Any]]


class Ending:
    """The ends of one service's jobs. `read`, `write`: ask the account. `clock`: milliseconds since the epoch."""

    def __init__(self, read: Ask, write: Ask, clock: Clock) -> None:
        self._read, self._write, self._clock = read, write, clock
        #: Id → when it was asked to stop.
        self._told: dict[str, int] = {}
        #: Id → until when it may end by itself.
        self._left: dict[str, int] = {}
        self._ended: set[str] = set()
        #: Ids of jobs that the last list had.
        self._listed: set[str] = set()
        #: Id → stops of it that were refused.
        self._refusals: dict[str, int] = {}

    async def look(self, listed: Mapping[str, Item]) -> None:
        """Notes which of the listed jobs have ended, and stops those with no time left. Raises PlatformUnavailable."""
        ended = {id for id, item in listed.items() if states.job_state(str(item.get("Status"))).is_final}
        self._ended |= ended
        self._listed = set(listed)
        for id in ended & self._left.keys():
            del self._left[id]
        await self.stop(id for id, until_ms in self._left.items() if until_ms <= self._clock())

    async def leave(self, id: str, *, is_ending: bool) -> None:
        """Releases a job that is not observed any more. `is_ending`: it ends by itself; else it is stopped.

        Raises PlatformUnavailable.
        """
        if id in self._ended:
            self._ended.discard(id)
        elif is_ending:
            self._left.setdefault(id, self._clock() + _OWN_END_MS)
        else:
            await self.stop([id])

    async def finish(self) -> None:
        """Stops jobs that were left to themselves and have not ended. Raises PlatformUnavailable."""
        await self.stop(list(self._left))
        self._left.clear()

    async def stop(self, ids: Iterable[str]) -> None:
        """Stops jobs. Quiet for ended and unknown ones. Raises PlatformUnavailable for an undelivered stop; `look`
        repeats a refused one."""
        now_ms = self._clock()
        due = [id for id in ids if id not in self._ended and self._told.get(id, 0) <= now_ms - _REPEAT_MS]
        await all_of(self._stop(id) for id in due)

    async def _stop(self, id: str) -> None:
        try:
            await self._write(lambda client: client.stop_job(id))
        except DlcRefused as error:
            if not await self._has_ended(id):
                self._postpone(id, error)
                return
        self._told[id] = self._clock()
        self._left.pop(id, None)
        self._refusals.pop(id, None)

    async def _has_ended(self, id: str) -> bool:
        """Whether a job that cannot be stopped has ended, or does not exist."""
        try:
            item = await self._read(lambda client: client.get_job(id))
        except DlcRefused:
            return id not in self._listed and self._refusals.get(id, 0) >= _MOST_REFUSALS
        return item is None or states.job_state(str(item.get("Status"))).is_final

    def _postpone(self, id: str, error: DlcRefused) -> None:
        if id not in self._refusals:
            log.warning("job %s could not be stopped, which is tried again while PAI-DLC lists it: %s", id, error)
        self._refusals[id] = self._refusals.get(id, 0) + 1
        self._left[id] = self._clock() + _REPEAT_MS
