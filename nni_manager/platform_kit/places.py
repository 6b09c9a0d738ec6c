"""All places of a daemon's machines: `ledger` knows who has which, `line` whose turn it is; here they meet the clock.

One `Places` lives in a daemon, beside its connections, so that experiments that share a machine share its ledger.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nni_manager.platform_kit.cards import Reading
from nni_manager.platform_kit.ledger import Demands, MachineLedger, Reservation
from nni_manager.platform_kit.line import Line, placed


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperMachine:
    """A machine whose jobs a keeper keeps."""

    #: In the ledger: all experiments that mean this machine give it this name, e.g. ``remote:user@host:22``.
    name: str
    #: As people call it, e.g. ``hostA``; empty: the name without its kind.
    title: str = ""
    #: How many places it has, with indices from 0; None: its GPUs, which the keeper reads.
    places: int | None = 0


class Places:
    """Of all machines. `now_s`: a clock that never goes back."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._machines: dict[str, MachineLedger] = {}
        self.line = Line(self._machines, now_s)
        self._alarm: asyncio.TimerHandle | None = None
        #: Called when somebody begins to wait for places.
        self.on_want: list[Callable[[], None]] = []

    def machine(self, declared: KeeperMachine) -> MachineLedger:
        """The one of this name; it has as many places as whoever knows of the most says."""
        machine = self._machines.setdefault(declared.name, MachineLedger(declared.name))
        machine.title = machine.title or declared.title
        if declared.places is None:
            machine.has_gpus = True
        elif not machine.has_gpus:
            machine.places = range(max(declared.places, len(machine.places)))
        return machine

    def find(self, name: str) -> MachineLedger | None:
        return self._machines.get(name)

    def note_reading(self, machine: MachineLedger, reading: Reading) -> None:
        """The GPUs of a machine were read, or could not be."""
        before, uuids = machine.reading, _uuids(machine)
        machine.note_reading(reading)
        if _uuids(machine) != uuids:
            self._pair()
        if before is None or _matters(before) != _matters(reading):
            self.note_change()
            self.line.wake_all(machine.name)

    def _pair(self) -> None:
        """Machines that have a card in common are one machine, reached in two ways."""
        for machine in self._machines.values():
            others = (other for other in self._machines.values() if other is not machine)
            machine.twins = tuple(other for other in others if _uuids(other) & _uuids(machine))

    def want(self, owner: str, jobs: int, demands: Demands, wake: Callable[[], None]) -> None:
        """See `Line.want`."""
        self.line.want(owner, jobs, demands, wake)
        self.watch_offers()
        if jobs:
            for callback in tuple(self.on_want):
                callback()

    def try_out(self, demands: Demands, most: int) -> tuple[list[Reservation], Sequence[MachineLedger]]:
        """Where as many jobs would go, if nobody else waited, and how the machines would be then."""
        trial = {name: machine.copy() for name in demands if (machine := self._machines.get(name)) is not None}
        return placed(trial, "trial", demands, most), tuple(trial.values())

    def note_change(self) -> None:
        """Something of a machine changed: whoever has room now is told."""
        self.line.offer()
        self.watch_offers()

    def watch_offers(self) -> None:
        """An offer that nobody takes ends by itself."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if (ends_s := self.line.next_offer_ends_s) is not None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(max(0.0, ends_s - self._now_s()), self.note_change)


def _uuids(machine: MachineLedger) -> frozenset[str]:
    return frozenset(card.uuid for card in machine.cards.values() if card.uuid)


def _matters(reading: Reading) -> object:
    """What decides who gets a card, and what people read of it."""
    cards = [
        (card.index, card.uuid, card.error, tuple(map(str, card.foreign)), card.foreign_bytes >> 28)
        for card in reading.cards
    ]
    return reading.error, cards
