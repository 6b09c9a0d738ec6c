"""Why a trial is WAITING: a code for programs, a sentence for people, details for whoever wants to know more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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
    """One reason. Two are the same when all three parts are."""

    code: WaitCode
    #: One sentence for the user, e.g. ``gpu 0 on hostA busy: pid 4242 of user x, 11 GiB``.
    sentence: str
    #: JSON: the same for programs, e.g. ``{"machine": "hostA", "gpu": 0}``.
    details: Mapping[str, object] = field(default_factory=dict)
