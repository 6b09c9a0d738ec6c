"""Training services of an experiment: their names and states, and the reasons why trials wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class WaitCode(StrEnum):
    """Why a trial is WAITING."""

    #: All slots of `trialConcurrency` are taken.
    CONCURRENCY = "CONCURRENCY"
    #: Handed to the platform, not started yet.
    SUBMITTED = "SUBMITTED"
    #: The platform takes no jobs at the moment.
    PLATFORM_UNAVAILABLE = "PLATFORM_UNAVAILABLE"
    #: The experiment is on hold.
    HOLD = "HOLD"
    #: Its last attempt was given up; the next one starts when a slot is free.
    RETRY = "RETRY"
    #: No GPU is free that fits.
    GPU = "GPU"
    #: The machine it should run on cannot be reached.
    MACHINE_DOWN = "MACHINE_DOWN"
    #: The cluster finds no node for it.
    UNSCHEDULABLE = "UNSCHEDULABLE"
    #: Its container image is not there (yet).
    IMAGE = "IMAGE"
    #: A quota or limit of the account is reached.
    QUOTA = "QUOTA"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A reason for which a trial waits. Two are the same when all three parts are."""

    code: WaitCode
    #: One sentence for the user, e.g. ``gpu 0 on hostA busy: pid 4242 of user x, 11 GiB``.
    sentence: str
    #: JSON: the same for programs, e.g. ``{"machine": "hostA", "gpu": 0}``.
    details: Mapping[str, object] = field(default_factory=dict)


class ServiceStatus(StrEnum):
    """How a training service of an experiment is."""

    #: Not reached yet by this process.
    CONNECTING = "connecting"
    UP = "up"
    #: It cannot be asked, or takes no jobs now; ends by itself.
    AWAY = "away"
    #: A person must put something right.
    ON_HOLD = "on hold"
    #: It takes nothing new.
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveService:
    """A training service as only the process that works with it knows it."""

    name: str
    platform: str
    #: CONNECTING, UP or AWAY.
    status: ServiceStatus
    #: When it became so, milliseconds since the epoch.
    since_ms: int
    #: What is wrong; empty when all is well.
    trouble: str
    #: Jobs it has room for; None: as many as one likes, or not known.
    free: int | None
    #: When there is no room: why.
    full: Wait | None


#: The field of a section that says what its service is called, where that is not its position's name.
NAME = "name"


def without_name(section: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section as its adapter sees it: without the service's name."""
    return {field: value for field, value in section.items() if field != NAME} if NAME in section else section


def service_names(services: Iterable[tuple[str, str]]) -> list[str]:
    """The names of services: ``openpai``, ``openpai-2``. `services`: platform, and the name it was given, or empty; in
    their order."""
    seen: Counter[str] = Counter()
    names = []
    for platform, given in services:
        seen[platform] += 1
        by_position = platform if seen[platform] == 1 else f"{platform}-{seen[platform]}"
        names.append(given or by_position)
    return names
