"""The service's list of an experiment's jobs: in pages, as far back as it must, and late by an unknown time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.platform_kit.shared_list import SharedList
from nni_manager.platforms.dlc.client import DlcClient, Item, Page
from nni_manager.platforms.dlc.job import TAG_EXPERIMENT

#: Pages that are read at a time; jobs that are further down are asked for one by one.
_MOST_PAGES = 10
#: Milliseconds that two clocks may differ by: the list begins so much earlier than the jobs that it is asked for.
_SKEW_MS = 3600 * 1000

Read = Callable[[Callable[[DlcClient], Awaitable[Page]]], Awaitable[Page]]


class JobList:
    """The list of one experiment's jobs. `read`: asks the account; `fresh_s`: see `SharedList`."""

    def __init__(self, read: Read, experiment_id: str, fresh_s: float) -> None:
        self._ask = read
        self._tags = {TAG_EXPERIMENT: experiment_id}
        self._since_ms = 0
        self._shared = SharedList(self._fetch, fresh_s)

    async def read(self, since_ms: int, not_before_s: float = float("-inf")) -> Mapping[str, Item]:
        """The jobs by their ids, at least those created since then (milliseconds since the epoch; the service itself
        looks back for seven days only). `not_before_s`: see `SharedList`. Raises PlatformUnavailable and
        BadCredentials."""
        since_ms = max(0, since_ms - _SKEW_MS)
        if since_ms < self._since_ms or not self._since_ms:
            self._since_ms, not_before_s = since_ms, asyncio.get_running_loop().time()
        elif since_ms > self._since_ms + _SKEW_MS:
            self._since_ms = since_ms  # from the next question on
        return await self._shared.get(not_before_s)

    async def close(self) -> None:
        await self._shared.close()

    async def _fetch(self) -> Mapping[str, Item]:
        found: dict[str, Item] = {}
        since_ms = self._since_ms
        for number in range(1, _MOST_PAGES + 1):
            page = await self._ask(_page(self._tags, since_ms, number))
            found |= {str(item["JobId"]): item for item in page.jobs if item.get("JobId")}
            if page.total > len(found) and not page.jobs and number == 1:
                raise PlatformUnavailable("PAI-DLC counts jobs and lists none of them; it is asked again")
            if not page.jobs or len(found) >= page.total:
                break
        return found


def _page(tags: Mapping[str, str], since_ms: int, number: int) -> Callable[[DlcClient], Awaitable[Page]]:
    return lambda client: client.list_jobs(tags=tags, since_ms=since_ms, page=number)
