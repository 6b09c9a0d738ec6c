"""Records of restarts, which lists lack: a job that has failed after restarts is queried once.

Only the record of a restart that failed says that the job's machines were taken away, where its reason does not.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from nni_manager.domain.job import JobState
from nni_manager.platforms.dlc import states
from nni_manager.platforms.dlc.client import DlcRefused, Item

log = logging.getLogger(__name__)


class RestartRecords:
    """The records of one service's jobs. `ask`: asks about a job by its id; raises DlcRefused, PlatformUnavailable."""

    def __init__(self, ask: Callable[[str], Awaitable[Item | None]]) -> None:
        self._ask = ask
        #: Id → the records of the job.
        self._known: dict[str, object] = {}

    async def completed(self, id: str, item: Item) -> Item:
        """The job as listed, with records of its restarts where they may say why it failed. Raises
        PlatformUnavailable."""
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
            log.warning("PAI-DLC does not say how job %s was restarted: %s", id, error)
            return ()
        return found.get("RestartRecord") or ()


def _may_tell_more(item: Item) -> bool:
    """Whether a job has failed after restarts (``used/most``) without a reason."""
    used = str(item.get("RestartTimes") or "").partition("/")[0]
    was_restarted = used.isdigit() and int(used) > 0
    return was_restarted and "RestartRecord" not in item and states.job_report(item, "").state is JobState.FAILED
