"""How a workspace misbehaves; set by tests."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Faults:
    #: ``refuse`` (503), ``drop``, ``hang`` (no answer until it ends).
    outage: str = ""
    #: So many more jobs are taken, and their answers lost.
    lost_puts: int = 0
    throttled: int = 0
    retry_after_s: int = 1
    page_limit: int = 100
    #: Job → a status that nothing has heard of.
    statuses: dict[str, str] = field(default_factory=dict)
    #: New jobs stay Queued until they are released.
    hold: bool = False
    #: Jobs run no commands: they are Completed after so many seconds.
    pretend_s: float | None = None
