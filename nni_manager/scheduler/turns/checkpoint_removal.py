"""Has checkpoints that nothing needs any more removed, at each training service that their trials ran on."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.job import JobHandle
from nni_manager.domain.stored_state import NeedlessCheckpoint
from nni_manager.scheduler.turns.inbox import Inbox
from nni_manager.scheduler.turns.training_service import TrainingService
from trial_runner.wire.backoff import Backoff

log = logging.getLogger(__name__)

#: Seconds before checkpoints that could not be removed are tried again; the last one repeats.
_RETRY_WAITS_S = (1.0, 5.0, 30.0, 120.0)


class CheckpointRemoval:
    """The removal of checkpoints of one experiment. `services`: by name; those that are gone are left out."""

    def __init__(self, services: Mapping[str, TrainingService], inbox: Inbox) -> None:
        self._services = services
        self._inbox = inbox
        self._trials: set[str] = set()
        self._failed = Backoff(_RETRY_WAITS_S)

    @property
    def at_work(self) -> frozenset[str]:
        """Trials that the plan need not name again now."""
        return frozenset(self._trials)

    def forget(self) -> None:
        """Forgets what an earlier loop was at."""
        self._trials.clear()

    def begin(self, checkpoints: Sequence[NeedlessCheckpoint]) -> None:
        self._trials.update(one.trial_id for one in checkpoints)

    async def run(self, checkpoints: Sequence[NeedlessCheckpoint]) -> None:
        """Removes them, and tells the inbox; what cannot be done now is planned again after a while."""
        trials = [one.trial_id for one in checkpoints]
        try:
            for service, handles in self._by_service(checkpoints).items():
                await service.call("remove_checkpoints", partial(service.platform.remove_checkpoints, handles))
        except NniManagerError as error:
            if not self._failed.failures:
                log.warning("checkpoints of %d trials are not removed yet: %s", len(trials), error)
            asyncio.get_running_loop().call_later(self._failed.next_wait(), self._again, trials)
        else:
            self._failed.reset()
            self._trials.difference_update(trials)
            self._inbox.removed_checkpoints(trials)

    def _again(self, trials: Sequence[str]) -> None:
        self._trials.difference_update(trials)
        self._inbox.wake()

    def _by_service(self, checkpoints: Sequence[NeedlessCheckpoint]) -> dict[TrainingService, list[JobHandle]]:
        found: dict[TrainingService, list[JobHandle]] = defaultdict(list)
        for name, handle in (job for one in checkpoints for job in one.jobs):
            service = self._services.get(name)
            if service is not None and service.platform.capabilities.removes_checkpoints:
                found[service].append(handle)
        return found
