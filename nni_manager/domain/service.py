"""Training services as people see them: what each is called, and how it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from nni_manager.domain.wait import Wait


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
    """What only the process that works with a service knows of it."""

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


def service_names(platforms: Iterable[str]) -> list[str]:
    """What services are called: ``openpai``, ``openpai-2``. In the order of `platforms`."""
    seen: Counter[str] = Counter()
    names = []
    for platform in platforms:
        seen[platform] += 1
        names.append(platform if seen[platform] == 1 else f"{platform}-{seen[platform]}")
    return names
