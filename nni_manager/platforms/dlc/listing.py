"""The list of one experiment's jobs, and queries for jobs that it lacks.

The list has pages, is read as far back as needed, and lags by an unknown time. Jobs that it lacks are queried one by
one, a few per round. The answer for a nonexistent job is undocumented, and a refusal may be about rights for a single
job. So a job is missing if the service answers 404, or refuses the query while a complete list lacks the job. It is
gone if that lasts (`platform_kit.confirmed_loss`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.platform_kit.confirmed_loss import ConfirmedLoss
from nni_manager.platforms.dlc import states
from nni_manager.platforms.dlc.account import DlcClient, DlcRefused, Item, Page
from nni_manager.platforms.dlc.job import TAG_EXPERIMENT
from nni_manager.web_services.shared_list import SharedList

log = logging.getLogger(__name__)

#: Number of pages per read; jobs on later pages are queried individually.
_MOST_PAGES = 10
#: Milliseconds of tolerated clock difference: the list begins this much before the oldest job.
_SKEW_MS = 3600 * 1000

Read = Callable[[Callable[[DlcClient], Awaitable[Page]]], Awaitable[Page]]


class JobList:
    """The list of one experiment's jobs. `read`: asks the account; `fresh_s`: see `SharedList`."""

    def __init__(self, read: Read, experiment_id: str, fresh_s: float) -> None:
        self._ask = read
        self._tags = {TAG_EXPERIMENT: experiment_id}
        self._since_ms = 0
        #: Whether the last list was complete, by the service's own count.
        self.is_complete = False
        self._shared = SharedList(self._fetch, fresh_s)

    async def read(self, since_ms: int, not_before_s: float = float("-inf")) -> Mapping[str, Item]:
        """The jobs by id, at least those created since then (milliseconds since the epoch; the service returns the last
        seven days only). `not_before_s`: see `SharedList`. Raises PlatformUnavailable and BadCredentials."""
        since_ms = max(0, since_ms - _SKEW_MS)
        if since_ms < self._since_ms or not self._since_ms:
            self._since_ms, not_before_s = since_ms, asyncio.get_running_loop().time()
        elif since_ms > self._since_ms + _SKEW_MS:
            self._since_ms = since_ms  # from the next request on
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
                raise PlatformUnavailable("PAI-DLC counts jobs but lists none of them; retrying")
            if not page.jobs or len(found) >= page.total:
                break
        self.is_complete = len(found) >= page.total
        return found


def _page(tags: Mapping[str, str], since_ms: int, number: int) -> Callable[[DlcClient], Awaitable[Page]]:
    return lambda client: client.list_jobs(tags=tags, since_ms=since_ms, page=number)


class RestartRecords:
    """Records of restarts, which lists lack: a job that failed after restarts is queried once.

    `ask`: queries a job by its id; raises DlcRefused, PlatformUnavailable. If the job's reason does not say that its
    machines were reclaimed, only the record of its failed restart does.
    """

    def __init__(self, ask: Callable[[str], Awaitable[Item | None]]) -> None:
        self._ask = ask
        #: Id → records of the job.
        self._known: dict[str, object] = {}

    async def completed(self, id: str, item: Item) -> Item:
        """The listed job, with its restart records if they may explain the failure. Raises PlatformUnavailable."""
        if not _may_tell_more(item):
            return item
        if id not in self._known:
            self._known[id] = await self._records(id)
        return {**item, "RestartRecord": self._known[id]}

    def forget(self, id: str) -> None:
        self._known.pop(id, None)

    async def _records(self, id: str) -> object:
        try:
            found: Mapping[str, object] = await self._ask(id) or {}
        except DlcRefused as error:
            log.warning("PAI-DLC returned no restart records of job %s: %s", id, error)
            return ()
        return found.get("RestartRecord") or ()


def _may_tell_more(item: Item) -> bool:
    """Whether a job failed after restarts (``used/most``) without a reason."""
    used = str(item.get("RestartTimes") or "").partition("/")[0]
    was_restarted = used.isdigit() and int(used) > 0
    return was_restarted and "RestartRecord" not in item and states.job_report(item, "").state is JobState.FAILED


#: Number of jobs to query per round.
MOST_QUESTIONS = 5

#: (handle) → the job, or None if it does not exist. Raises DlcRefused and PlatformUnavailable.
Ask = Callable[[JobHandle], Awaitable[Item | None]]


class MissingJobs:
    """The jobs of one service that its list lacks. `ask`: queries one job; `has_ended`: whether the exit file of the
    job of that name was read."""

    def __init__(self, ask: Ask, loss: ConfirmedLoss, has_ended: Callable[[str], bool]) -> None:
        self._ask = ask
        self._loss = loss
        self._has_ended = has_ended
        #: Names of jobs whose queries were refused.
        self._refused: set[str] = set()

    async def look(self, missing: Sequence[JobHandle], *, is_list_complete: bool) -> dict[JobHandle, Item | None]:
        """The entries of some of them; None: gone. Raises PlatformUnavailable."""
        found: dict[JobHandle, Item | None] = {}
        for handle in self._loss.due(missing):
            item, has_answered = await self._answer(handle, is_list_complete=is_list_complete)
            if item is not None:
                self.seen(handle.job_name)
                found[handle] = item
            elif self._loss.is_lost(
                handle.job_name, has_exit=self._has_ended(handle.job_name), all_answered=has_answered
            ):
                found[handle] = None
        return found

    async def _answer(self, handle: JobHandle, *, is_list_complete: bool) -> tuple[Item | None, bool]:
        """The job, or None, and whether that means that it is missing."""
        try:
            return await self._ask(handle), True
        except DlcRefused as error:
            if handle.job_name not in self._refused:
                self._refused.add(handle.job_name)
                log.warning("PAI-DLC does not list job %s, and a query failed: %s", handle.job_name, error)
            return None, is_list_complete

    def seen(self, job_name: str) -> None:
        """Notes that the service has a job."""
        self._loss.found(job_name)
        self._refused.discard(job_name)

    def forget(self, job_name: str) -> None:
        self._loss.forget(job_name)
        self._refused.discard(job_name)
