"""Stops jobs: immediately on request, or after a delay if they should end on their own.

A job ends a moment after its runner's last report. Stopped in that moment, it would appear as stopped in the console.
So it is stopped only if it still runs after the delay. A refused stop is repeated while the list has the job; a refusal
for one job does not affect others.
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

#: Milliseconds for a job to end on its own, and for the service to carry out a stop before it is repeated.
_OWN_END_MS = 60_000
_REPEAT_MS = 30_000
#: Number of refused stops after which an unlisted job counts as nonexistent.
_MOST_REFUSALS = 3

Ask = Callable[[Callable[[DlcClient], Awaitable[Any]]], Awaitable[Any]]


class Ending:
    """Stops the jobs of one service. `read`, `write`: call the account. `clock`: milliseconds since the epoch."""

    def __init__(self, read: Ask, write: Ask, clock: Clock) -> None:
        self._read, self._write, self._clock = read, write, clock
        #: Id → time of the stop request.
        self._told: dict[str, int] = {}
        #: Id → time until which it may end on its own.
        self._left: dict[str, int] = {}
        self._ended: set[str] = set()
        #: Ids of jobs on the last list.
        self._listed: set[str] = set()
        #: Id → number of refused stops.
        self._refusals: dict[str, int] = {}

    async def look(self, listed: Mapping[str, Item]) -> None:
        """Notes which listed jobs have ended, and stops those that are out of time. Raises PlatformUnavailable."""
        ended = {id for id, item in listed.items() if states.job_state(str(item.get("Status"))).is_final}
        self._ended |= ended
        self._listed = set(listed)
        for id in ended & self._left.keys():
            del self._left[id]
        await self.stop(id for id, until_ms in self._left.items() if until_ms <= self._clock())

    async def leave(self, id: str, *, is_ending: bool) -> None:
        """Releases a job that is not observed any more. `is_ending`: it ends on its own; otherwise it is stopped.

        Raises PlatformUnavailable.
        """
        if id in self._ended:
            self._ended.discard(id)
        elif is_ending:
            self._left.setdefault(id, self._clock() + _OWN_END_MS)
        else:
            await self.stop([id])

    async def finish(self) -> None:
        """Stops released jobs that have not ended on their own. Raises PlatformUnavailable."""
        await self.stop(list(self._left))
        self._left.clear()

    async def stop(self, ids: Iterable[str]) -> None:
        """Stops jobs. Ignores ended and unknown ones. Raises PlatformUnavailable if a stop was not delivered; `look`
        repeats refused ones."""
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
            log.warning("job %s could not be stopped; retrying while PAI-DLC lists it: %s", id, error)
        self._refusals[id] = self._refusals.get(id, 0) + 1
        self._left[id] = self._clock() + _REPEAT_MS
