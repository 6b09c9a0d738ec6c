"""A machine of a training service, as its adapter sees it now."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReport:
    #: Its name for people, ``hostA``.
    name: str
    #: What tells it from others of the same kind, ``user@hostA:22``.
    key: str
    #: Its name in the ledger of places (`machines.ledger`); empty: its jobs need no places.
    ledger: str = ""
    #: Why it takes no jobs, one sentence; empty: it takes them.
    why: str = ""
    #: It is meant to start nothing new.
    is_drained: bool = False
    #: Whether machines are added and drained by the section's ``machineList``.
    is_listed: bool = False
    #: Jobs of all experiments of this daemon that run there; None: not known.
    jobs: int | None = None
    #: None: not known.
    processors: int | None = None
    #: Processes that want a processor, on average of the last minute; None: not known.
    load: float | None = None
