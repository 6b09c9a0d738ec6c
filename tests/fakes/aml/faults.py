"""Faults of a workspace, set by tests."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Faults:
    #: ``refuse`` (503), ``drop``, ``hang`` (no answer until it ends).
    outage: str = ""
    #: Number of further jobs that are accepted with a lost answer.
    lost_puts: int = 0
    throttled: int = 0
    retry_after_s: int = 1
    page_limit: int = 100
    #: Job → an unknown status.
    statuses: dict[str, str] = field(default_factory=dict)
    #: New jobs stay Queued until released.
    hold: bool = False
    #: Seconds after which jobs are Completed without running a command.
    pretend_s: float | None = None
