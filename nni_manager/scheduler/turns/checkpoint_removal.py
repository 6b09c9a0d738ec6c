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

#: Seconds before a checkpoint that could not be removed is tried again; the last one repeats.
_RETRY_WAITS_S = (1.0, 5.0, 30.0, 120.0)


class CheckpointRemoval:
    """The removal of checkpoints of one experiment. `services`: by name; those that are gone are left out."""

    def __init__(self, services: Mapping[str, TrainingService], inbox: Inbox) -> None:
        self._services = services
        self._inbox = inbox
        self._trials: set[str] = set()
        #: Trial → waits before its checkpoint is tried again.
        self._failed: dict[str, Backoff] = {}

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
        """Removes them, and tells the inbox which are gone; each of the others is planned again after a while."""
        stays: dict[str, str] = {}
        for service, trials in self._by_service(checkpoints).items():
            answer = await self._ask(service, list(trials))
            stays.update({trials[handle]: why for handle, why in answer.items()})
        removed = [one.trial_id for one in checkpoints if one.trial_id not in stays]
        self._trials.difference_update(removed)
        for trial_id in removed:
            self._failed.pop(trial_id, None)
        if removed:
            self._inbox.removed_checkpoints(removed)
        if stays:
            self._wait(stays)

    async def _ask(self, service: TrainingService, handles: Sequence[JobHandle]) -> Mapping[JobHandle, str]:
        """Why the checkpoints stay of which jobs' trials."""
        try:
            return await service.call("remove_checkpoints", partial(service.platform.remove_checkpoints, handles))
        except NniManagerError as error:
            return dict.fromkeys(handles, str(error))
        except Exception as error:
            service.note_bug(error)
            return dict.fromkeys(handles, f"the platform's adapter failed: {error!r}")

    def _wait(self, stays: Mapping[str, str]) -> None:
        """Has them tried again. `stays`: trial → why its checkpoint is still there."""
        fresh = [trial_id for trial_id in stays if trial_id not in self._failed]
        if fresh:
            log.warning("checkpoints of %d trials are not removed yet: %s", len(fresh), stays[fresh[0]])
        loop = asyncio.get_running_loop()
        for trial_id in stays:
            wait_s = self._failed.setdefault(trial_id, Backoff(_RETRY_WAITS_S)).next_wait()
            loop.call_later(wait_s, self._again, trial_id)

    def _again(self, trial_id: str) -> None:
        self._trials.discard(trial_id)
        self._inbox.wake()

    def _by_service(self, checkpoints: Sequence[NeedlessCheckpoint]) -> dict[TrainingService, dict[JobHandle, str]]:
        """Service → handle of a job there → its trial."""
        found: dict[TrainingService, dict[JobHandle, str]] = defaultdict(dict)
        for trial_id, (name, handle) in ((one.trial_id, job) for one in checkpoints for job in one.jobs):
            service = self._services.get(name)
            if service is not None and service.platform.capabilities.removes_checkpoints:
                found[service][handle] = trial_id
        return found
