"""The ledger of a machine's places (GPUs, or numbered slots) and of the jobs that have them, for a whole daemon.

A place is reserved in memory before a job starts, and the reservation is stored with the start in the keeper's claim.
The keeper's list is the truth, and the only information of a new daemon. So a machine grants nothing before its
keeper's list was read. A reservation without an answer to its start stays until the next list. A place is released
when all processes of its job have ended.

A GPU is identified by its UUID if the driver has one: a job keeps its card if the driver renumbers them, and two names
of one machine share it. A free place is offered for some seconds to the experiment that has waited longest, as decided
by `waiting_queue`. Nothing here waits, so tests use tables and virtual time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from nni_manager.machines.gpu_sample import Card, GpuSample

#: Maximum number of jobs on a place if only memory limits them.
ANY_NUMBER = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The places that every job of one experiment needs of a machine."""

    #: Number of places, all of one machine; 0: none.
    count: int
    #: Maximum number of jobs that share one of its places, including this one.
    share: int = 1
    #: Indices of the allowed places; None: all.
    only: frozenset[int] | None = None
    #: Whether GPUs with processes of other users are allowed.
    use_active: bool = False
    #: Free memory that each GPU must have, in bytes; 0: any.
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Places of one machine that a job has."""

    machine: str
    #: Indices of the places, ascending; empty: the job needs none.
    places: tuple[int, ...] = ()
    #: `share` of the demand behind it.
    share: int = 1
    memory_bytes: int = 0
    #: UUIDs of the places, in the same order, if they are GPUs with UUIDs.
    uuids: tuple[str, ...] = ()
    #: GPUs for display: ``hostA, gpu 0``; empty: the places are not GPUs.
    place: str = ""

    def as_json(self) -> dict[str, Any]:
        """The reservation as stored in the keeper's claim."""
        entry = {"machine": self.machine, "places": list(self.places), "share": self.share}
        others = {"memory_bytes": self.memory_bytes, "uuids": list(self.uuids), "place": self.place}
        return {**entry, **{name: value for name, value in others.items() if value}}

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Self | None:
        """The reservation in a keeper's claim; None: the job was started without one."""
        places, uuids = entry.get("places"), entry.get("uuids") or []
        if not isinstance(places, list) or not isinstance(entry.get("machine"), str):
            return None
        return cls(
            machine=entry["machine"],
            places=tuple(places),
            share=entry.get("share", 1),
            memory_bytes=entry.get("memory_bytes", 0),
            uuids=tuple(uuids) if len(uuids) == len(places) else (),
            place=entry.get("place", ""),
        )


class User(NamedTuple):
    """A job that has a place."""

    job: str
    share: int
    memory_bytes: int


@dataclass(slots=True)
class _Entry:
    reservation: Reservation
    #: The connection on which its start was last requested, or its job listed.
    connection: int


@dataclass(slots=True)
class MachineLedger:
    """The ledger of one machine: its places, and the jobs that have them."""

    name: str
    #: Indices of its places.
    places: Sequence[int] = ()
    #: Its display name; empty: the name without its kind.
    title: str = ""
    #: GPUs by index, if the machine's places are GPUs.
    cards: Mapping[int, Card] = field(default_factory=dict)
    #: Its places are GPUs, which its keeper reads.
    has_gpus: bool = False
    #: The result of the last reading, if any.
    reading: GpuSample | None = None
    #: Its keeper's list was read on the current connection.
    is_read: bool = False
    #: Its keeper's list was read at some time in this process, so all its jobs are known here.
    was_read: bool = False
    #: Other names of this machine: they share a card with it.
    aliases: tuple[MachineLedger, ...] = ()
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _connection: int = 0

    @property
    def called(self) -> str:
        return self.title or self.name.rpartition(":")[2]

    def disconnect(self) -> None:
        """Notes that the keeper is unreachable; nothing is granted until its list has been read again."""
        self.is_read = False
        self._connection += 1

    def read(self, listed: Mapping[str, Reservation]) -> None:
        """Applies the keeper's list. `listed`: job → reservation, for jobs with running processes."""
        self._entries = {
            name: entry
            for name, entry in self._entries.items()
            if name in listed or entry.connection == self._connection
        }
        for name, reservation in listed.items():
            self._entries[name] = _Entry(reservation, self._connection)
        self.is_read = self.was_read = True

    def note_reading(self, reading: GpuSample) -> None:
        """Notes the machine's current GPUs; a failed reading does not change them."""
        self.reading = reading
        if not reading.error:
            self.cards = {card.index: card for card in reading.cards}
            self.places = sorted(self.cards)

    def reserve(self, job_name: str, demand: Demand) -> Reservation | None:
        """Places for a job about to be (re)started; None: nothing fits now. The same name gets the same places."""
        entry = self._entries.get(job_name)
        if entry is not None:
            entry.connection = self._connection
            return entry.reservation
        places = self.fitting(demand) if self.is_read else []
        if len(places) < demand.count or not self.is_read:
            return None
        chosen = tuple(sorted(places[: demand.count]))
        uuids = tuple(self.cards[place].uuid for place in chosen if place in self.cards)
        reservation = Reservation(
            machine=self.name,
            places=chosen,
            share=demand.share,
            memory_bytes=demand.memory_bytes,
            uuids=uuids if all(uuids) else (),
            place=self.in_words(chosen) if self.has_gpus else "",
        )
        self._entries[job_name] = _Entry(reservation, self._connection)
        return reservation

    def release(self, job_name: str) -> bool:
        """Releases a job's places after its end, or if it certainly did not start. Returns whether it had any."""
        entry = self._entries.pop(job_name, None)
        return entry is not None and bool(entry.reservation.places)

    def has(self, job_name: str) -> bool:
        return job_name in self._entries

    @property
    def jobs(self) -> int:
        """The number of jobs on the machine, with and without places."""
        return len(self._entries)

    def in_words(self, places: Sequence[int]) -> str:
        """Places for display: ``hostA, gpu 0, 1``; without places, only the machine."""
        kind = "gpu" if self.has_gpus else "place"
        return f"{self.called}, {kind} {', '.join(map(str, places))}" if places else self.called

    # What fits

    def fitting(self, demand: Demand) -> list[int]:
        """Places that a job could share with their present jobs, least used first; if memory is demanded, the fullest
        with enough memory first."""
        if self.has_gpus and (self.reading is None or self.reading.error):
            return []  # a driver that does not answer the keeper would not answer trials, either
        users = self.users()
        free = [place for place in self.allowed(demand) if self.fits(place, demand, users.get(place, ()))]
        if demand.memory_bytes:
            return sorted(free, key=lambda place: (self.free_bytes(place, users.get(place, ())), place))
        return sorted(free, key=lambda place: (len(users.get(place, ())), place))

    def room(self, demand: Demand) -> int:
        """The number of jobs with one place each that would find room now."""
        users = self.users()
        return sum(self._slots(place, demand, users.get(place, ())) for place in self.fitting(demand))

    def allowed(self, demand: Demand) -> list[int]:
        return [place for place in self.places if demand.only is None or place in demand.only]

    def fits(self, place: int, demand: Demand, users: Sequence[User]) -> bool:
        card = self.cards.get(place)
        if card is not None and (card.error or (not demand.use_active and self.foreign_on(card, users))):
            return False
        return self._slots(place, demand, users) > 0

    def foreign_on(self, card: Card, users: Sequence[User]) -> bool:
        """Whether a foreign process is on a card.

        A hidden process counts as ours if we have a job there: in a container, the driver reports process ids of the
        surrounding machine.
        """
        return any(process.user or not users for process in card.foreign)

    def free_bytes(self, place: int, users: Sequence[User]) -> int:
        """Memory of a place left for another job; negative if more is promised or used."""
        card = self.cards.get(place)
        if card is None or card.memory_bytes is None:
            return 0
        ours = sum(max(user.memory_bytes, card.used_by_job.get(user.job, 0)) for user in users)
        return card.memory_bytes - card.foreign_bytes - ours

    def _slots(self, place: int, demand: Demand, users: Sequence[User]) -> int:
        """The number of further jobs that may have a place: the minimum of its jobs' limits and the demand's."""
        by_number = min([demand.share, *(user.share for user in users)]) - len(users)
        if not demand.memory_bytes:
            return by_number
        return min(by_number, self.free_bytes(place, users) // demand.memory_bytes)

    def users(self) -> dict[int, list[User]]:
        """The jobs that have each place."""
        index_of = {card.uuid: index for index, card in self.cards.items() if card.uuid}
        users: dict[int, list[User]] = {}
        for name, reservation, place in self._reserved(index_of):
            users.setdefault(place, []).append(User(name, reservation.share, reservation.memory_bytes))
        return users

    def _reserved(self, index_of: Mapping[str, int]) -> Iterator[tuple[str, Reservation, int]]:
        """Job, reservation and place of all reserved places; cards that no longer exist are left out."""
        for name, entry in self._entries.items():
            held = entry.reservation
            uuids = held.uuids if index_of else ()
            places = [index_of.get(uuid) for uuid in uuids] if uuids else held.places
            yield from ((name, held, place) for place in places if place is not None)
        for alias in self.aliases:
            for name, entry in alias._entries.items():
                held = entry.reservation
                yield from ((name, held, index_of[uuid]) for uuid in held.uuids if uuid in index_of)

    def copy(self) -> MachineLedger:
        """A copy of the ledger for trial reservations.

        Aliases are shared, not copied: a waiting list rarely names one machine twice.
        """
        return MachineLedger(
            self.name,
            self.places,
            self.title,
            self.cards,
            self.has_gpus,
            self.reading,
            self.is_read,
            self.was_read,
            self.aliases,
            dict(self._entries),
            self._connection,
        )


#: What a job needs of each machine that it may run on, by the machine's name; the first of equal ones counts.
Demands = Mapping[str, Demand]


#: Lower is better; None: nothing fits.
Rank = tuple[int, int] | None


def choose(machines: Iterable[MachineLedger], demands: Demands) -> MachineLedger | None:
    """The machine for the next job; None: none has room."""
    by_name = {machine.name: machine for machine in machines}
    name = best({name: rank(machine, demands[name]) for name, machine in by_name.items()})
    return None if name is None else by_name[name]


def rank(machine: MachineLedger, demand: Demand) -> Rank:
    """The rank of a machine for the next job: most room first, then fewest jobs; None: nothing fits.

    For a job that needs no place, the machine with the fewest jobs comes first.
    """
    if not machine.is_read:
        return None
    if demand.count == 0:
        return 0, machine.jobs
    fits = len(machine.fitting(demand)) >= demand.count
    return (-machine.room(demand), machine.jobs) if fits else None


def best(ranks: Mapping[str, Rank]) -> str | None:
    """The name with the best rank, the first of equal ones; None: nothing fits anywhere."""
    able = {name: found for name, found in ranks.items() if found is not None}
    return min(able, key=lambda name: able[name], default=None)
