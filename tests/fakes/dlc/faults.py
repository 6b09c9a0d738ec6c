"""Faults of the service, set by tests or with ``POST /fake/faults``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Faults:
    #: Delay of lists in seconds.
    list_lag_s: float = 0.0
    #: Maximum number of jobs on a page, regardless of the request.
    page_limit: int = 100
    #: Number of further creations that are carried out with a lost answer.
    lost_creations: int = 0
    #: Number of further calls that flow control refuses, and the wait in milliseconds, if any.
    throttled: int = 0
    retry_after_ms: int = 0
    #: Maximum number of calls of an account per second; 0: unlimited.
    calls_a_second: int = 0
    #: "": none; ``refuse`` (503), ``html`` (a gateway's page), ``hang up``, ``hang`` (no answer until it ends).
    outage: str = ""
    #: Job id → an unknown status.
    statuses: dict[str, str] = field(default_factory=dict)
    #: Job id → message of its status.
    reasons: dict[str, str] = field(default_factory=dict)
    #: New jobs stay in the queue until released.
    hold: bool = False
    #: Seconds after which jobs succeed without running a command.
    pretend_s: float | None = None
    #: Status and code for a missing job. The vendor documents none.
    missing: tuple[int, str] = (400, "JobNotExists")
    #: Status and code of refusals of the next creations, in order.
    creations: list[tuple[int, str]] = field(default_factory=list)
    #: Number of further creations that a proxy sends twice; it returns the second answer.
    doubled_creations: int = 0
    #: Seconds that the service's clock is ahead.
    ahead_s: float = 0.0
    #: Job id → status and code that refuse each call about only this job.
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
