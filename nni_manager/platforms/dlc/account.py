"""An account that experiments of one access key share: a client, and the pace at which the service may be asked.

The vendor publishes no limits. Reads and writes have separate paces, so that a hundred submissions do not delay the
observation of jobs; the service's own flow control holds for both. The list of an
experiment's jobs comes in pages, as far back as it must, and late by an unknown time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.platform_kit.connections import Connection
from nni_manager.platforms.dlc.client import DlcClient, DlcRefused, Item, Page, Throttled
from nni_manager.platforms.dlc.job import TAG_EXPERIMENT
from nni_manager.web_services.pacing import Pacing
from nni_manager.web_services.shared_list import SharedList

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
        #: Whether the last list had all jobs that there are, as the service counts them.
        self.is_complete = False
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
        self.is_complete = len(found) >= page.total
        return found


def _page(tags: Mapping[str, str], since_ms: int, number: int) -> Callable[[DlcClient], Awaitable[Page]]:
    return lambda client: client.list_jobs(tags=tags, since_ms=since_ms, page=number)


#: Calls a second, and how many may come at once first.
READS_A_SECOND, READ_BURST = 2.0, 5
WRITES_A_SECOND, WRITE_BURST = 3.0, 5
#: Seconds after a refusal by flow control that names no time.
_BACK_OFF_S = 5.0
#: Seconds that a call waits for its turn.
_PATIENCE_S = 25.0
T = TypeVar("T")
Verb = Callable[[DlcClient], Awaitable[T]]


class DlcAccount(Connection):
    """An account of PAI-DLC. `make`: makes a client with this secret."""

    def __init__(self, key: str, make: Callable[[str], DlcClient]) -> None:
        super().__init__(key)
        self._make = make
        self._client: DlcClient | None = None
        self._reads = Pacing(calls=READS_A_SECOND, per_s=1.0, burst=READ_BURST)
        self._writes = Pacing(calls=WRITES_A_SECOND, per_s=1.0, burst=WRITE_BURST)

    async def check(self, credential: str) -> None:
        client = self._make(credential)
        try:
            await self._paced(self._reads, lambda: client.list_jobs(tags={}, since_ms=self._clock(), page=1, size=1))
        except DlcRefused as error:  # a foreign workspace, or a wrong clock: not even a list is allowed
            raise BadCredentials(
                f"{error}; look at accessKeyId, workspaceId, region and this machine's clock"
            ) from error

    async def use(self, credential: str) -> None:
        self._client = self._make(credential)

    async def read(self, verb: Verb[T]) -> T:
        return await self._call(self._reads, verb)

    async def write(self, verb: Verb[T]) -> T:
        return await self._call(self._writes, verb)

    async def _call(self, pacing: Pacing, verb: Verb[T]) -> T:
        client = self._client
        assert client is not None, "a lease was admitted before"
        return await self._paced(pacing, lambda: verb(client))

    async def _paced(self, pacing: Pacing, call: Callable[[], Awaitable[T]]) -> T:
        if not await pacing.turn_within(_PATIENCE_S):
            raise PlatformUnavailable(
                "PAI-DLC is asked as often as it may be; the next turn is too far away", refused=True
            )
        try:
            answer = await call()
        except Throttled as error:
            for one in (self._reads, self._writes):
                one.back_off(error.wait_s or _BACK_OFF_S)
            raise
        except PlatformUnavailable as error:
            self.note_down(str(error))
            raise
        except DlcRefused:
            self.note_up()
            raise
        self.note_up()
        return answer
