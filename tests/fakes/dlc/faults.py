"""How the service misbehaves; set by tests, or over HTTP by ``POST /fake/faults``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Faults:
    #: Seconds after which lists show what happened.
    list_lag_s: float = 0.0
    #: A page of a list has no more jobs, whatever was asked for.
    page_limit: int = 100
    #: So many more creations are carried out, and their answers lost.
    lost_creations: int = 0
    #: So many more calls are refused by flow control, with this wait, if any, in milliseconds.
    throttled: int = 0
    retry_after_ms: int = 0
    #: Calls an account may make in any second; 0: as many as it likes.
    calls_a_second: int = 0
    #: "": none; ``refuse`` (503), ``html`` (a gateway's page), ``hang up``, ``hang`` (no answer until it ends).
    outage: str = ""
    #: Job id → a status that nothing has heard of.
    statuses: dict[str, str] = field(default_factory=dict)
    #: Job id → what it says of its status.
    reasons: dict[str, str] = field(default_factory=dict)
    #: New jobs stay in the queue until they are released.
    hold: bool = False
    #: Jobs run no commands: they succeed after so many seconds.
    pretend_s: float | None = None
    #: Status and code for a job that there is not. The vendor documents none.
    missing: tuple[int, str] = (400, "JobNotExists")
    #: Status and code with which so many more creations are refused, the first of them next.
    creations: list[tuple[int, str]] = field(default_factory=list)
    #: So many more creations are sent on twice by a proxy, which gives the answer of the second.
    doubled_creations: int = 0
    #: Seconds by which the service's clock is ahead.
    ahead_s: float = 0.0
    #: Job id → status and code with which each call about it alone is refused.
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
