"""The places of machines, GPUs or what stands for them, and who has them: one ledger for all experiments of a daemon.

A place is reserved in memory before a job is started, and the reservation goes with the start into the keeper's claim:
what the keeper lists is the truth, and all that a new daemon knows. So a machine grants nothing before its keeper's
list was read; a reservation whose start was never answered stays until the next list; and a place is given back when
no process of its job is left, never earlier.

A place that becomes free is offered to the experiment that waits longest, for a moment in which the others leave it
alone. `line` decides who that is. Nothing here waits, so that tables and virtual time can test it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What every job of one experiment needs of a machine."""

    #: Places, all of one machine; 0: none.
    count: int
    #: Most jobs that may have one of its places at a time, this one included.
    share: int = 1
    #: Indices of the places that may be used; None: all.
    only: frozenset[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Places of one machine that a job has."""

    machine: str
    #: In rising order; empty: the job needs none.
    places: tuple[int, ...] = ()
    #: As in the demand that it was made for.
    share: int = 1

    def as_json(self) -> dict[str, Any]:
        """As it stands in the keeper's claim."""
        return {"machine": self.machine, "places": list(self.places), "share": self.share}

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Self | None:
        """None for what is no reservation: a job that was started without one."""
        places = entry.get("places")
        if not isinstance(places, list) or not isinstance(entry.get("machine"), str):
            return None
        return cls(machine=entry["machine"], places=tuple(sorted(places)), share=entry.get("share", 1))


@dataclass(slots=True)
class _Entry:
    reservation: Reservation
    #: The connection on which its start was last asked for, or its job listed.
    connection: int


@dataclass(slots=True)
class MachineLedger:
    """One machine."""

    name: str
    #: Indices of its places.
    places: Sequence[int] = ()
    #: Place → why it cannot be had although no job of ours has it, e.g. a foreign process.
    blocked: Mapping[int, str] = field(default_factory=dict)
    #: Its keeper's list was read on the connection there is now.
    is_read: bool = False
    #: It was read at some time in this process, so that all its jobs are known here.
    was_read: bool = False
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _connection: int = 0

    def disconnect(self) -> None:
        """The keeper cannot be asked; nothing new is granted until its list was read again."""
        self.is_read = False
        self._connection += 1

    def read(self, listed: Mapping[str, Reservation]) -> None:
        """`listed`: reservations of the jobs that the keeper lists and that have a process left, by name."""
        self._entries = {
            name: entry
            for name, entry in self._entries.items()
            if name in listed or entry.connection == self._connection
        }
        for name, reservation in listed.items():
            self._entries[name] = _Entry(reservation, self._connection)
        self.is_read = self.was_read = True

    def reserve(self, job_name: str, demand: Demand) -> Reservation | None:
        """For a job about to be started (again); None: nothing fits now. The same name gets the same places."""
        entry = self._entries.get(job_name)
        if entry is not None:
            entry.connection = self._connection
            return entry.reservation
        places = self.fitting(demand) if self.is_read else []
        if len(places) < demand.count or not self.is_read:
            return None
        chosen = tuple(sorted(places[: demand.count]))
        reservation = Reservation(machine=self.name, places=chosen, share=demand.share)
        self._entries[job_name] = _Entry(reservation, self._connection)
        return reservation

    def release(self, job_name: str) -> bool:
        """No process of the job is left, or it was certainly not started. Whether it had a place."""
        entry = self._entries.pop(job_name, None)
        return entry is not None and bool(entry.reservation.places)

    def has(self, job_name: str) -> bool:
        return job_name in self._entries

    def fitting(self, demand: Demand) -> list[int]:
        """Places that a job could have beside those who have them; the least used first."""
        users = self.users()
        allowed = [p for p in self.places if p not in self.blocked and (demand.only is None or p in demand.only)]
        free = [place for place in allowed if _has_room(users.get(place, ()), demand.share)]
        return sorted(free, key=lambda place: (len(users.get(place, ())), place))

    def users(self) -> dict[int, list[tuple[str, int]]]:
        """Place → (job name, share) of those who have it."""
        users: dict[int, list[tuple[str, int]]] = {}
        for name, entry in self._entries.items():
            for place in entry.reservation.places:
                users.setdefault(place, []).append((name, entry.reservation.share))
        return users

    def copy(self) -> MachineLedger:
        """To try things out on."""
        return MachineLedger(
            self.name, self.places, self.blocked, self.is_read, self.was_read, dict(self._entries), self._connection
        )


def _has_room(users: Sequence[tuple[str, int]], share: int) -> bool:
    """A place's limit is the least of those of its users and of who asks."""
    return len(users) < min([share, *(limit for _, limit in users)])


def choose(machines: Iterable[MachineLedger], demand: Demand) -> MachineLedger | None:
    """The machine for the next job: the one with most places that fit, of equal ones the first; None: none has room."""
    best: MachineLedger | None = None
    most = -1
    for machine in machines:
        fitting = len(machine.fitting(demand)) if machine.is_read else -1
        if fitting >= demand.count and fitting > most:
            best, most = machine, fitting
    return best
