"""Jobs that the list lacks: each is queried by itself, some in every round.

A list is late, and has an end. What the service answers about a job that there is not is documented nowhere, and a
refusal may as well be about rights for this one job. So a job is gone when the service says 404, or when it is refused
twice, in two rounds, while a whole list does not have it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from nni_manager.domain.job import JobHandle
from nni_manager.platforms.dlc.client import DlcRefused, Item
from nni_manager.web_services.jobs import UnlistedJobs

log = logging.getLogger(__name__)

#: Jobs that are asked about in one round.
_MOST_QUESTIONS = 5
#: Refusals, in as many rounds, that say that a job is gone.
_ENOUGH = 2

#: (handle) → the job, None: there is none. Raises DlcRefused and PlatformUnavailable.
Ask = Callable[[JobHandle], Awaitable[Item | None]]


class MissingJobs:
    """The jobs of one service that its list does not have. `ask`: asks about one."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._unlisted = UnlistedJobs(_MOST_QUESTIONS)
        #: Job name → refusals while whole lists did not have it.
        self._refusals: dict[str, int] = {}

    async def look(self, missing: Sequence[JobHandle], *, is_list_complete: bool) -> dict[JobHandle, Item | None]:
        """The entries of some of them; None: gone. Raises PlatformUnavailable."""
        found: dict[JobHandle, Item | None] = {}
        for handle in self._unlisted.due(missing):
            try:
                found[handle] = await self._ask(handle)
            except DlcRefused as error:
                if is_list_complete and self._is_enough(handle, error):
                    found[handle] = None
            else:
                self._refusals.pop(handle.job_name, None)
        return found

    def _is_enough(self, handle: JobHandle, error: DlcRefused) -> bool:
        count = self._refusals.get(handle.job_name, 0) + 1
        self._refusals[handle.job_name] = count
        if count == 1:
            log.warning("PAI-DLC does not list job %s, and says: %s", handle.job_name, error)
        return count >= _ENOUGH

    def seen(self, job_name: str) -> None:
        """Notes that the list has a job."""
        self._refusals.pop(job_name, None)

    def forget(self, job_name: str) -> None:
        self._refusals.pop(job_name, None)
        self._unlisted.forget(job_name)
