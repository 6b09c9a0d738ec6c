"""Chooses the training service of the next attempt. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from nni_manager.domain.service import Wait, WaitCode
from nni_manager.domain.trial import OpenTrial
from nni_manager.scheduler.planning.snapshot import ServiceView, Snapshot


class Choice:
    """Counts the attempts that this plan starts, so that no service exceeds its room."""

    def __init__(self, snapshot: Snapshot, in_play: Iterable[OpenTrial]) -> None:
        self._snapshot = snapshot
        self._open: defaultdict[str, int] = defaultdict(int)
        self._picked: defaultdict[str, int] = defaultdict(int)
        for trial in in_play:
            if trial.job is not None:
                self._open[trial.job.service] += 1

    def pick(self) -> str | None:
        """The service for one more attempt: of those with room, the one with the fewest open attempts; of equal ones
        the first in the config; None: none."""
        able = [service for service in self._snapshot.services if self._can_take(service) and self._has_room(service)]
        if not able:
            return None
        best = min(able, key=lambda service: self._open[service.name])
        self._open[best.name] += 1
        self._picked[best.name] += 1
        return best.name

    def lacking_room(self) -> list[str]:
        """Services that could take another attempt if they had room."""
        return [
            service.name
            for service in self._snapshot.services
            if self._can_take(service) and not self._has_room(service)
        ]

    @property
    def is_possible(self) -> bool:
        """Whether a service is usable, apart from room and limit."""
        return any(self._is_usable(service) for service in self._snapshot.services)

    def reason(self) -> Wait | None:
        """The services' reasons for taking no attempt, joined; None: they have none."""
        services = self._snapshot.services
        reasons = {service.name: wait for service in services if (wait := self._reason(service)) is not None}
        if not reasons:
            return None
        first = next(iter(reasons.values()))
        if len(reasons) == 1:
            return first
        sentence = "; ".join(f"{name}: {wait.sentence}" for name, wait in reasons.items())
        details = {name: {"code": wait.code, **wait.details} for name, wait in reasons.items()}
        return Wait(code=first.code, sentence=sentence, details=details)

    def _is_usable(self, service: ServiceView) -> bool:
        here = self._snapshot.here
        is_free = service.hold is None or service.is_tried
        return not service.is_removed and is_free and service.state.may_submit(here.now_ms)

    def _can_take(self, service: ServiceView) -> bool:
        return self._is_usable(service) and (service.limit is None or self._open[service.name] < service.limit)

    def _has_room(self, service: ServiceView) -> bool:
        free = service.state.free
        if service.hold is not None:
            return self._picked[service.name] == 0 and free != 0
        return free is None or self._picked[service.name] < free

    def _reason(self, service: ServiceView) -> Wait | None:
        if service.is_removed:
            return None
        if service.hold is not None:
            return Wait(code=WaitCode.HOLD, sentence=f"{service.name} is on hold: {service.hold.sentence}")
        if not service.state.may_submit(self._snapshot.here.now_ms) or service.state.away_since_ms is not None:
            return Wait(code=WaitCode.PLATFORM_UNAVAILABLE, sentence=service.state.trouble)
        if service.limit is not None and self._open[service.name] >= service.limit:
            sentence = f"all {service.limit} slots of trialConcurrency of {service.name} are taken"
            return Wait(code=WaitCode.CONCURRENCY, sentence=sentence)
        return None if self._has_room(service) else service.state.full or _FULL


_FULL = Wait(code=WaitCode.QUOTA, sentence="the service has no room now")
