"""All places of a daemon's machines: a `MachineLedger` each for reservations, a `Line` for the order of waiting jobs.

The daemon has one `Places`, next to its connections, so that experiments on the same machine share its ledger.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from nni_manager.machines.gpu_sample import GpuSample
from nni_manager.machines.ledger import Demands, MachineLedger, Reservation, best, choose, rank


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperMachine:
    """A machine with a keeper for its jobs."""

    #: Its name in the ledger, used by all experiments for this machine, e.g. ``remote:user@host:22``.
    name: str
    #: Its display name, e.g. ``hostA``; empty: the name without its kind.
    title: str = ""
    #: Number of places, with indices from 0; None: its GPUs, which the keeper reads.
    places: int | None = 0


class Places:
    """The places of all machines of a daemon."""

    def __init__(self) -> None:
        self._machines: dict[str, MachineLedger] = {}
        self.line = Line(self._machines, time.monotonic)
        self._alarm: asyncio.TimerHandle | None = None
        #: Called when an experiment starts to wait for places.
        self.on_want: list[Callable[[], None]] = []
        #: Called when machines are displayed: each reads its GPUs again, and returns soon in any case.
        self.on_look: list[Callable[[], Awaitable[None]]] = []

    def machine(self, declared: KeeperMachine) -> MachineLedger:
        """The ledger of the machine with this name; of different numbers of places the highest counts."""
        machine = self._machines.setdefault(declared.name, MachineLedger(declared.name))
        machine.title = machine.title or declared.title
        if declared.places is None:
            machine.has_gpus = True
        elif not machine.has_gpus:
            machine.places = range(max(declared.places, len(machine.places)))
        return machine

    def find(self, name: str) -> MachineLedger | None:
        return self._machines.get(name)

    def note_reading(self, machine: MachineLedger, reading: GpuSample) -> None:
        """Notes that the GPUs of a machine were read, or that reading failed."""
        before, uuids = machine.reading, _uuids(machine)
        machine.note_reading(reading)
        if _uuids(machine) != uuids:
            self._pair()
        if before is None or _matters(before) != _matters(reading):
            self.note_change()
            self.line.wake_all(machine.name)

    def _pair(self) -> None:
        """Pairs machines that share a card: they are one machine, reached in two ways."""
        for machine in self._machines.values():
            others = (other for other in self._machines.values() if other is not machine)
            machine.aliases = tuple(other for other in others if _uuids(other) & _uuids(machine))

    def want(self, owner: str, jobs: int, demands: Demands, wake: Callable[[], None]) -> None:
        """Notes the number of waiting jobs, see `Line.want`."""
        self.line.want(owner, jobs, demands, wake)
        self.watch_offers()
        if jobs:
            for callback in tuple(self.on_want):
                callback()

    async def look(self) -> None:
        """Reads the GPUs of all machines again: the last reading may be old."""
        await asyncio.gather(*(callback() for callback in tuple(self.on_look)))

    def try_out(self, demands: Demands, most: int) -> tuple[list[Reservation], Sequence[MachineLedger]]:
        """The places that a number of jobs would get if no others waited, and the resulting machines."""
        trial = {name: machine.copy() for name in demands if (machine := self._machines.get(name)) is not None}
        return placed(trial, "trial", demands, most), tuple(trial.values())

    def note_change(self) -> None:
        """Wakes the experiments that have room now, after a machine has changed."""
        self.line.offer()
        self.watch_offers()

    def watch_offers(self) -> None:
        """Sets the timer that ends an unused offer."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if (ends_s := self.line.next_offer_ends_s) is not None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(max(0.0, ends_s - time.monotonic()), self.note_change)


def _uuids(machine: MachineLedger) -> frozenset[str]:
    return frozenset(card.uuid for card in machine.cards.values() if card.uuid)


def _matters(reading: GpuSample) -> object:
    """The part of a reading that affects placement or its sentences."""
    cards = [
        (card.index, card.uuid, card.error, tuple(map(str, card.foreign)), card.foreign_bytes >> 28)
        for card in reading.cards
    ]
    return reading.error, cards


#: Seconds for which a free place is reserved for the experiment that comes first.
OFFER_S = 0.5
#: Maximum number of jobs in one trial placement.
_MOST = 10_000


@dataclass(slots=True)
class _Waiting:
    demands: Demands
    wake: Callable[[], None]
    #: Time when the places that fit now were first offered to it; None: nothing fits.
    offered_s: float | None = None


class Line:
    """The order of the experiments that wait for places of a daemon's machines. `now_s`: a monotonic clock, seconds.

    Call `offer` after every change of a machine, and again at `next_offer_ends_s`.
    """

    def __init__(self, machines: Mapping[str, MachineLedger], now_s: Callable[[], float]) -> None:
        self._machines = machines
        self._now_s = now_s
        #: By experiment and service; the longest wait comes first.
        self._waiting: dict[str, _Waiting] = {}

    def want(self, owner: str, jobs: int, demands: Demands, wake: Callable[[], None]) -> None:
        """Notes the number of `owner`'s jobs that wait for machines, 0: none. `wake`: called when there is room."""
        if jobs <= 0:
            if self._waiting.pop(owner, None) is not None:
                self.offer()
        elif owner not in self._waiting:
            self._waiting[owner] = _Waiting(demands, wake)
            self.offer()

    @property
    def waiting(self) -> list[tuple[str, Demands]]:
        """The waiting owners, next first, with what each needs."""
        return [(owner, waiting.demands) for owner, waiting in self._waiting.items()]

    def room(self, owner: str, demands: Demands) -> int:
        """The number of jobs of `owner` that fit now, after those ahead of it have been served."""
        trial = {name: machine.copy() for name, machine in self._machines.items()}
        for other, waiting in self._waiting.items():
            if other == owner:
                break
            placed(trial, other, waiting.demands, 1)
        most = 1 if any(other != owner for other in self._waiting) else _MOST
        return len(placed(trial, owner, demands, most))

    def reserve(self, owner: str, job_name: str, demands: Demands, *, is_repeat: bool = False) -> Reservation | None:
        """Places for a job about to start; None: there are none, or another experiment comes first.

        A repeated job may already run on any of the machines, so it waits until each keeper's list was read once.
        """
        known = [self._machines[name] for name in demands if name in self._machines]
        for machine in known:
            if machine.has(job_name):
                return machine.reserve(job_name, demands[machine.name])
        is_somewhere = is_repeat and not all(machine.was_read for machine in known)
        if is_somewhere or self.room(owner, demands) == 0:
            return None
        chosen = choose(known, demands)
        reservation = chosen.reserve(job_name, demands[chosen.name]) if chosen is not None else None
        if owner in self._waiting:
            self._end_turn(owner)
            self.offer()
        return reservation

    def offer(self) -> None:
        """Wakes the experiments that have room now, and ends unused offers."""
        now_s = self._now_s()
        late = [o for o, w in self._waiting.items() if w.offered_s is not None and now_s - w.offered_s >= OFFER_S]
        for owner in late:
            self._end_turn(owner)
        trial = {name: machine.copy() for name, machine in self._machines.items()}
        woken = []
        for owner, waiting in self._waiting.items():
            fits = placed(trial, owner, waiting.demands, 1)
            if fits and waiting.offered_s is None:
                waiting.offered_s = now_s
                woken.append(waiting.wake)
            elif not fits:
                waiting.offered_s = None
        for wake in woken:
            wake()

    @property
    def next_offer_ends_s(self) -> float | None:
        """Time of the next call of `offer` without a change; None: nothing is offered."""
        return min((w.offered_s + OFFER_S for w in self._waiting.values() if w.offered_s is not None), default=None)

    def _end_turn(self, owner: str) -> None:
        """Ends the turn of `owner`, which moves to the end of the queue."""
        waiting = self._waiting.pop(owner)
        waiting.offered_s = None
        self._waiting[owner] = waiting

    def wake_all(self, machine: str) -> None:
        """Wakes the experiments that wait for a machine, as the reason for no room has changed."""
        for waiting in tuple(self._waiting.values()):
            if machine in waiting.demands:
                waiting.wake()

    def is_waited_for(self, machine: str) -> bool:
        """Whether an experiment waits for places of a machine."""
        return any(machine in w.demands and w.demands[machine].count for w in self._waiting.values())


def placed(machines: Mapping[str, MachineLedger], owner: str, demands: Demands, most: int) -> list[Reservation]:
    """Reservations for as many jobs of `owner` as fit, at most `most`."""
    found: list[Reservation] = []
    ranks = {name: rank(machines[name], demand) for name, demand in demands.items() if name in machines}
    while len(found) < most and (name := best(ranks)) is not None:
        if demands[name].count == 0 and most == _MOST:  # unlimited
            return [Reservation(machine=name)] * most
        reservation = machines[name].reserve(f"{owner} {len(found) + 1}", demands[name])
        assert reservation is not None, "the machine was chosen because it fits"
        found.append(reservation)
        ranks[name] = rank(machines[name], demands[name])  # those of the others are unchanged
    return found
