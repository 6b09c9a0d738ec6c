"""A machine of a training service, as its adapter currently sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReport:
    #: Its display name, ``hostA``.
    name: str
    #: What distinguishes it from others of its kind, ``user@hostA:22``.
    key: str
    #: Its name in the ledger of places (`machines.ledger`); empty: its jobs need no places.
    ledger: str = ""
    #: Why it takes no jobs, one sentence; empty: it takes jobs.
    why: str = ""
    #: The user has excluded it from new jobs.
    is_drained: bool = False
    #: Whether machines are added and drained through the section's ``machineList``.
    is_listed: bool = False
    #: Number of jobs that run there, of all experiments of this daemon; None: unknown.
    jobs: int | None = None
    #: None: unknown.
    processors: int | None = None
    #: Load average of the last minute; None: unknown.
    load: float | None = None
