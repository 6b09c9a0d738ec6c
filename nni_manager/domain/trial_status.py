"""The status of a trial, separate from `trial` to save imports in tuners' processes, which need only this."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class TrialStatus(StrEnum):
    """The status of a trial, in NNI's terms."""

    #: No job of it runs; the wait reason says why.
    WAITING = "WAITING"
    #: Its command runs.
    RUNNING = "RUNNING"
    #: Its platform cannot be asked for 30 s or more.
    UNKNOWN = "UNKNOWN"
    #: Exit code 0.
    SUCCEEDED = "SUCCEEDED"
    #: Its own code failed, its job was refused, or a time limit of its platform ended it.
    FAILED = "FAILED"
    #: A user asked, or the experiment was stopped.
    USER_CANCELED = "USER_CANCELED"
    #: The platform ended it and no attempt is left.
    SYS_CANCELED = "SYS_CANCELED"
    #: The assessor or `maxTrialDuration` asked.
    EARLY_STOPPED = "EARLY_STOPPED"

    @property
    def is_final(self) -> bool:
        return self not in OPEN_STATUSES


OPEN_STATUSES = (TrialStatus.WAITING, TrialStatus.RUNNING, TrialStatus.UNKNOWN)
#: Statuses of trials that failed, by their own code or by their platform.
FAILED_STATUSES = (TrialStatus.FAILED, TrialStatus.SYS_CANCELED)


def has_open(counts: Mapping[str, int]) -> bool:
    """Whether some trial waits or runs."""
    return any(counts.get(status) for status in OPEN_STATUSES)


def ended(counts: Mapping[str, int]) -> int:
    """The number of trials that have ended, with any status."""
    return sum(count for status, count in counts.items() if status not in OPEN_STATUSES)


def failed(counts: Mapping[str, int]) -> int:
    """The number of trials that failed, by their own code or by their platform."""
    return sum(counts.get(status, 0) for status in FAILED_STATUSES)
