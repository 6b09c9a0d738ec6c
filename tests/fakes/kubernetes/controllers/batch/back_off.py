"""The delay before a failed pod of a Job is replaced. The controller keeps it in memory, not in the status."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from tests.fakes.kubernetes.store import Object

#: The longest delay, as a multiple of the first.
_MOST = 60


@dataclass(frozen=True)
class Record:
    """Failed pods since the last one that succeeded."""

    failures: int = 0
    last: datetime.datetime | None = None

    def after(self, succeeded: list[Object], failed: list[Object]) -> Record:
        """The record with pods that ended since the last look; a success clears the earlier failures."""
        ends = sorted(map(finished_at, failed))
        if not succeeded:
            return Record(self.failures + len(ends), ends[-1]) if ends else self
        success = max(map(finished_at, succeeded))
        later = [end for end in ends if end > success]
        return Record(len(later), later[-1]) if later else Record()

    def left_s(self, first_s: float) -> float:
        """Seconds until the next pod. `first_s`: the delay after one failure; it doubles with each."""
        if self.last is None:
            return 0.0
        passed = datetime.datetime.now(datetime.UTC) - self.last
        return max(first_s * min(2 ** (self.failures - 1), _MOST) - passed.total_seconds(), 0.0)


def finished_at(pod: Object) -> datetime.datetime:
    """The end of its last container; if unknown, the time at which it was no longer ready, was deleted or created."""
    containers = [one["state"].get("terminated") for one in pod["status"].get("containerStatuses") or ()]
    if containers and all(containers):
        return max(moment(one["finishedAt"]) for one in containers if one)
    for one in pod["status"].get("conditions") or ():
        if (one["type"], one["status"]) == ("Ready", "False"):
            return moment(one["lastTransitionTime"])
    meta = pod["metadata"]
    if "deletionTimestamp" in meta:
        grace = datetime.timedelta(seconds=meta.get("deletionGracePeriodSeconds") or 0)
        return moment(meta["deletionTimestamp"]) - grace
    return moment(meta["creationTimestamp"])


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def age_s(text: str) -> float:
    """Seconds since a time of the API."""
    return (datetime.datetime.now(datetime.UTC) - moment(text)).total_seconds()
