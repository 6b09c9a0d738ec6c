"""The line of experiments that wait for places: what is free goes to whoever waits longest.

An experiment stands in the line while it has trials that wait for room, and goes to its end with every job it starts.
What becomes free is offered along the line; an offer that is not taken within `OFFER_S` is over, and with it the turn:
no place stays idle because somebody ahead does not come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nni_manager.platform_kit.ledger import Demand, MachineLedger, Reservation, choose

#: Seconds for which a free place is kept for the experiment whose turn it is.
OFFER_S = 0.5
#: More jobs at a time nobody submits.
_MOST = 10_000


@dataclass(slots=True)
class _Waiting:
    demand: Demand
    machines: Sequence[str]
    wake: Callable[[], None]
    #: When the places that fit now were first offered to it; None: nothing fits.
    offered_s: float | None = None


class Line:
    """All machines of a daemon, and who waits for them. `now_s`: a clock that never goes back.

    Call `offer` after every change of a machine, and again after `next_offer_ends_s`.
    """

    def __init__(self, machines: Mapping[str, MachineLedger], now_s: Callable[[], float]) -> None:
        self._machines = machines
        self._now_s = now_s
        #: By experiment and service; who waits longest comes first.
        self._waiting: dict[str, _Waiting] = {}

    def want(self, owner: str, jobs: int, demand: Demand, machines: Sequence[str], wake: Callable[[], None]) -> None:
        """`owner` has so many jobs that wait for room on `machines`; 0: none. `wake` is called when there is some."""
        if jobs <= 0:
            if self._waiting.pop(owner, None) is not None:
                self.offer()
        elif owner not in self._waiting:
            self._waiting[owner] = _Waiting(demand, machines, wake)
            self.offer()

    def room(self, owner: str, demand: Demand, machines: Sequence[str]) -> int:
        """How many jobs of `owner` fit now, when those ahead of it have had theirs."""
        trial = {name: machine.copy() for name, machine in self._machines.items()}
        for other, waiting in self._waiting.items():
            if other == owner:
                break
            _place(trial, other, waiting.demand, waiting.machines)
        most = 1 if any(other != owner for other in self._waiting) else _MOST
        return sum(1 for _ in _placed(trial, owner, demand, machines, most))

    def reserve(
        self, owner: str, job_name: str, demand: Demand, machines: Sequence[str], *, is_repeat: bool = False
    ) -> Reservation | None:
        """Places for a job about to be started; None: there are none, or it is somebody else's turn.

        A repeat may run already on any of the machines, so it waits until the keeper of each was read once.
        """
        known = self._known(machines)
        for machine in known:
            if machine.has(job_name):
                return machine.reserve(job_name, demand)
        is_somewhere = is_repeat and not all(machine.was_read for machine in known)
        if is_somewhere or self.room(owner, demand, machines) == 0:
            return None
        chosen = choose(known, demand)
        reservation = chosen.reserve(job_name, demand) if chosen is not None else None
        if owner in self._waiting:
            self._end_turn(owner)
            self.offer()
        return reservation

    def offer(self) -> None:
        """Wakes those for whom there is room now, and ends turns that were not taken."""
        now_s = self._now_s()
        late = [o for o, w in self._waiting.items() if w.offered_s is not None and now_s - w.offered_s >= OFFER_S]
        for owner in late:
            self._end_turn(owner)
        trial = {name: machine.copy() for name, machine in self._machines.items()}
        woken = []
        for owner, waiting in self._waiting.items():
            fits = _place(trial, owner, waiting.demand, waiting.machines)
            if fits and waiting.offered_s is None:
                waiting.offered_s = now_s
                woken.append(waiting.wake)
            elif not fits:
                waiting.offered_s = None
        for wake in woken:
            wake()

    @property
    def next_offer_ends_s(self) -> float | None:
        """When `offer` is to be called although nothing changed; None: nothing is offered."""
        return min((w.offered_s + OFFER_S for w in self._waiting.values() if w.offered_s is not None), default=None)

    def _end_turn(self, owner: str) -> None:
        """It stands at the end of the line now."""
        waiting = self._waiting.pop(owner)
        waiting.offered_s = None
        self._waiting[owner] = waiting

    def _known(self, names: Sequence[str]) -> list[MachineLedger]:
        return [self._machines[name] for name in names if name in self._machines]


def _place(trial: Mapping[str, MachineLedger], owner: str, demand: Demand, machines: Sequence[str]) -> bool:
    """One job of `owner`, tried out; whether it fits."""
    return any(True for _ in _placed(trial, owner, demand, machines, 1))


def _placed(
    trial: Mapping[str, MachineLedger], owner: str, demand: Demand, machines: Sequence[str], most: int
) -> list[Reservation]:
    """As many jobs of `owner` as fit, at most `most`."""
    placed: list[Reservation] = []
    known = [trial[name] for name in machines if name in trial]
    while len(placed) < most and (machine := choose(known, demand)) is not None:
        if demand.count == 0:
            return placed + [Reservation(machine=machine.name)] * (most - len(placed))
        reservation = machine.reserve(f"{owner}/{len(placed)}", demand)
        assert reservation is not None, "the machine was chosen because it fits"
        placed.append(reservation)
    return placed
