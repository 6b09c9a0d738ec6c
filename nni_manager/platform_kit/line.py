"""The line of experiments that wait for places: what is free goes to whoever waits longest.

An experiment stands in the line while it has trials that wait for room, and goes to its end with every job it starts.
What becomes free is offered along the line; an offer that is not taken within `OFFER_S` is over, and with it the turn:
no place stays idle because somebody ahead does not come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nni_manager.platform_kit.ledger import Demands, MachineLedger, Reservation, best, choose, rank

#: Seconds for which a free place is kept for the experiment whose turn it is.
OFFER_S = 0.5
#: More jobs at a time nobody submits.
_MOST = 10_000


@dataclass(slots=True)
class _Waiting:
    demands: Demands
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

    def want(self, owner: str, jobs: int, demands: Demands, wake: Callable[[], None]) -> None:
        """`owner` has so many jobs that wait for room on these machines; 0: none. `wake`: called when there is some."""
        if jobs <= 0:
            if self._waiting.pop(owner, None) is not None:
                self.offer()
        elif owner not in self._waiting:
            self._waiting[owner] = _Waiting(demands, wake)
            self.offer()

    def room(self, owner: str, demands: Demands) -> int:
        """How many jobs of `owner` fit now, when those ahead of it have had theirs."""
        trial = {name: machine.copy() for name, machine in self._machines.items()}
        for other, waiting in self._waiting.items():
            if other == owner:
                break
            _place(trial, other, waiting.demands)
        most = 1 if any(other != owner for other in self._waiting) else _MOST
        return len(placed(trial, owner, demands, most))

    def reserve(self, owner: str, job_name: str, demands: Demands, *, is_repeat: bool = False) -> Reservation | None:
        """Places for a job about to be started; None: there are none, or it is somebody else's turn.

        A repeat may run already on any of the machines, so it waits until the keeper of each was read once.
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
        """Wakes those for whom there is room now, and ends turns that were not taken."""
        now_s = self._now_s()
        late = [o for o, w in self._waiting.items() if w.offered_s is not None and now_s - w.offered_s >= OFFER_S]
        for owner in late:
            self._end_turn(owner)
        trial = {name: machine.copy() for name, machine in self._machines.items()}
        woken = []
        for owner, waiting in self._waiting.items():
            fits = _place(trial, owner, waiting.demands)
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

    def wake_all(self, machine: str) -> None:
        """Why there is no room on this machine changed."""
        for waiting in tuple(self._waiting.values()):
            if machine in waiting.demands:
                waiting.wake()

    def is_waited_for(self, machine: str) -> bool:
        """Somebody waits for its places."""
        return any(machine in w.demands and w.demands[machine].count for w in self._waiting.values())


def placed(machines: Mapping[str, MachineLedger], owner: str, demands: Demands, most: int) -> list[Reservation]:
    """As many jobs of `owner` as fit, at most `most`, reserved."""
    found: list[Reservation] = []
    ranks = {name: rank(machines[name], demand) for name, demand in demands.items() if name in machines}
    while len(found) < most and (name := best(ranks)) is not None:
        if demands[name].count == 0 and most == _MOST:  # as many as one likes
            return [Reservation(machine=name)] * most
        reservation = machines[name].reserve(f"{owner} {len(found) + 1}", demands[name])
        assert reservation is not None, "the machine was chosen because it fits"
        found.append(reservation)
        ranks[name] = rank(machines[name], demands[name])  # those of the others are as they were
    return found


def _place(trial: Mapping[str, MachineLedger], owner: str, demands: Demands) -> bool:
    """One job of `owner`, tried out; whether it fits."""
    return bool(placed(trial, owner, demands, 1))
