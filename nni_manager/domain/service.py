"""Training services of an experiment: names, states, and reasons for waiting trials."""

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
    #: The machine that it must run on cannot be reached.
    MACHINE_DOWN = "MACHINE_DOWN"
    #: The cluster finds no node for it.
    UNSCHEDULABLE = "UNSCHEDULABLE"
    #: Its container image is missing or still being pulled.
    IMAGE = "IMAGE"
    #: A quota or limit of the account is reached.
    QUOTA = "QUOTA"
    #: Other jobs are before it in the platform's queue. Details, if known: `position`, `startsAt` (ISO time in UTC).
    QUEUED = "QUEUED"
    #: A user or administrator of the platform holds it, and must release it.
    HELD = "HELD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A reason for which a trial waits. Two are equal if all parts are."""

    code: WaitCode
    #: One sentence for the user, e.g. ``gpu 0 on hostA busy: pid 4242 of user x, 11 GiB``.
    sentence: str
    #: JSON: the same for programs, e.g. ``{"machine": "hostA", "gpu": 0}``.
    details: Mapping[str, object] = field(default_factory=dict)
    #: The platform will never start the job as it is. In the report on a PENDING job, it puts the service on hold after
    #: a minute; elsewhere it has no effect.
    is_hopeless: bool = False


class ServiceStatus(StrEnum):
    """The state of a training service of an experiment."""

    #: Not reached yet by this process.
    CONNECTING = "connecting"
    UP = "up"
    #: It does not answer, or takes no jobs now; ends by itself.
    AWAY = "away"
    #: The user must correct something.
    ON_HOLD = "on hold"
    #: It takes no new jobs.
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveService:
    """The live state of a training service, from its adapter; it is not stored."""

    name: str
    platform: str
    #: CONNECTING, UP or AWAY.
    status: ServiceStatus
    #: When the state began, milliseconds since the epoch.
    since_ms: int
    #: What is wrong, one sentence; empty: nothing.
    trouble: str
    #: Number of further jobs that it takes; None: unlimited or unknown.
    free: int | None
    #: Why it takes no further job.
    full: Wait | None


#: The field of a section with the name of its service; default: platform and position.
NAME = "name"


def without_name(section: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section without the service's name, for its adapter."""
    return {field: value for field, value in section.items() if field != NAME} if NAME in section else section


def service_names(services: Iterable[tuple[str, str]]) -> list[str]:
    """The names of services: ``openpai``, ``openpai-2``. `services`: (platform, given name or empty), in order."""
    seen: Counter[str] = Counter()
    names = []
    for platform, given in services:
        seen[platform] += 1
        by_position = platform if seen[platform] == 1 else f"{platform}-{seen[platform]}"
        names.append(given or by_position)
    return names
