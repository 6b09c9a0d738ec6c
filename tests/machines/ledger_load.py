"""A load on a ledger in virtual time: keepers that start and end jobs, answers that get lost, a daemon that dies.

With `has_gpus` places are cards: processes of others come and go on them, and some jobs share them by memory.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from nni_manager.machines.gpu_sample import Card, Foreign, GpuSample
from nni_manager.machines.ledger import ANY_NUMBER, Demand, MachineLedger, Reservation
from nni_manager.machines.waiting_queue import Line

#: Seconds for which a place may be idle while a job that fits waits and the daemon is ready.
MOST_IDLE_S = 1.0
#: The same for cards, which are read every `_READ_S` seconds while an experiment waits.
MOST_IDLE_CARD_S = 3.5
_READ_S = 2.0
_CARD_BYTES = 16


@dataclass
class Keeper:
    """The truth about one machine."""

    name: str
    places: list[int]
    running: dict[str, Reservation] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    started: list[str] = field(default_factory=list)
    is_connected: bool = False
    #: Place → memory that another user's process has there.
    foreign: dict[int, int] = field(default_factory=dict)

    def reading(self) -> GpuSample:
        """As its driver tells it."""
        return GpuSample(cards=tuple(self._card(place) for place in self.places))

    def _card(self, place: int) -> Card:
        used = self.foreign.get(place, 0)
        process = (Foreign(pid=1, user="x", memory_bytes=used),) if place in self.foreign else ()
        uuid = f"{self.name}-{place}"
        return Card(index=place, uuid=uuid, memory_bytes=_CARD_BYTES, foreign=process, foreign_bytes=used)


@dataclass
class Experiment:
    """What the store holds of it: how many trials are left, and which were decided to be submitted."""

    name: str
    #: By machine.
    demands: dict[str, Demand]
    trials: int
    concurrency: int
    duration_s: float
    made: int = 0
    intents: set[str] = field(default_factory=set)
    #: Job → machine.
    accepted: dict[str, str] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    #: Its loop does nothing until then.
    stuck_until_s: float = 0.0


class Load:
    """`run` plays it to its end and checks at every moment what must hold."""

    def __init__(self, seed: int, *, has_gpus: bool = False) -> None:
        self.random = random.Random(seed)
        self.has_gpus = has_gpus
        self.now_s = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.keepers = {f"m{n}": Keeper(f"m{n}", list(range(self.random.randint(1, 4)))) for n in range(self._few())}
        self.experiments = [self._experiment(n) for n in range(self._few())]
        self.faults = self.random.randint(0, 8)
        self.idle_since_s: float | None = None
        self.longest_idle_s = 0.0
        self._generation = 0
        self._begin()

    def run(self) -> None:
        for _ in range(self.faults):
            self._at(self.random.uniform(0, 20), self._fault)
        for _ in range(self.random.randint(1, 6) if self.has_gpus else 0):
            self._at(self.random.uniform(0, 10), self._intrude)
        while not all(len(e.done) == e.trials for e in self.experiments):
            assert self._queue, "nothing happens any more although trials are left"
            self.now_s, _, act = heapq.heappop(self._queue)
            act()
            self._judge()
            assert self.now_s < 10_000, "it does not end"

    # The daemon

    def _begin(self) -> None:
        """A new daemon knows only what is stored and what keepers tell."""
        self._generation += 1
        self.ledgers = {name: self._ledger(keeper) for name, keeper in self.keepers.items()}
        self.line = Line(self.ledgers, lambda: self.now_s)
        self._offer_at: float | None = None
        for keeper in self.keepers.values():
            keeper.is_connected = False
            self._soon(0.3, lambda keeper=keeper: self._connect(keeper))

    def _ledger(self, keeper: Keeper) -> MachineLedger:
        return MachineLedger(keeper.name, () if self.has_gpus else keeper.places, has_gpus=self.has_gpus)

    def _look_at_cards(self, keeper: Keeper) -> None:
        if self.has_gpus and keeper.is_connected:
            self.ledgers[keeper.name].note_reading(keeper.reading())

    def _connect(self, keeper: Keeper) -> None:
        """The list is asked for, and its answer comes a moment later."""
        if keeper.is_connected:
            return
        keeper.is_connected = True
        listed = dict(keeper.running)
        ended = set(keeper.ended)
        self._soon(0.05, lambda: self._read(keeper, listed, ended))

    def _read(self, keeper: Keeper, listed: dict[str, Reservation], ended: set[str]) -> None:
        if not keeper.is_connected:
            return
        still = {name: reservation for name, reservation in listed.items() if name in keeper.running}
        self.ledgers[keeper.name].read(still)
        self._look_at_cards(keeper)
        for name in ended | (listed.keys() - still.keys()):
            self._note_end(name)
        self._turn_all()

    def _turn_all(self) -> None:
        for experiment in self.experiments:
            self._turn(experiment)
        self.line.offer()
        self._plan_offer()

    def _turn(self, experiment: Experiment) -> None:
        if self.now_s < experiment.stuck_until_s:
            return
        for name in sorted(experiment.intents - experiment.accepted.keys()):
            self._submit(experiment, name, is_repeat=True)
        while self._free_slots(experiment) > 0:
            room = self.line.room(experiment.name, experiment.demands)
            if room == 0:
                break
            name = f"{experiment.name}-{experiment.made}"
            experiment.made += 1
            experiment.intents.add(name)
            if not self._submit(experiment, name):
                break
        jobs = max(0, self._free_slots(experiment)) + len(experiment.intents - experiment.accepted.keys())
        self.line.want(experiment.name, jobs, experiment.demands, lambda: self._soon(0.001, self._turn_all))

    def _free_slots(self, experiment: Experiment) -> int:
        in_play = len(experiment.intents - experiment.done)
        return min(experiment.concurrency - in_play, experiment.trials - experiment.made)

    def _submit(self, experiment: Experiment, name: str, *, is_repeat: bool = False) -> bool:
        """Reserve, spawn, answer; both ways may get lost, and then it is submitted again later."""
        for machine in experiment.demands:
            self._look_at_cards(self.keepers[machine])
        is_known = any(ledger.has(name) for ledger in self.ledgers.values())
        reservation = self.line.reserve(experiment.name, name, experiment.demands, is_repeat=is_repeat)
        if reservation is None:
            return False
        if not is_known and not experiment.demands[reservation.machine].use_active:
            taken = set(reservation.places) & self.keepers[reservation.machine].foreign.keys()
            assert not taken, f"{name} was put beside another user's process on {reservation.machine}, {taken}"
        keeper, fate = self.keepers[reservation.machine], self.random.random()
        if not keeper.is_connected:
            return False
        if fate < 0.03:  # the request is lost with the connection
            self._lose(keeper)
            return False
        self._spawn(keeper, experiment, name, reservation)
        if fate < 0.06:  # the answer is
            self._lose(keeper)
            return False
        experiment.accepted[name] = keeper.name
        return True

    def _lose(self, keeper: Keeper) -> None:
        keeper.is_connected = False
        self.ledgers[keeper.name].disconnect()
        self._soon(0.5, lambda: self._connect(keeper))

    def _note_end(self, name: str) -> None:
        experiment = next(e for e in self.experiments if name.startswith(f"{e.name}-"))
        experiment.done.add(name)
        experiment.accepted.setdefault(name, "")
        for ledger in self.ledgers.values():
            ledger.release(name)

    def _plan_offer(self) -> None:
        ends_s = self.line.next_offer_ends_s
        if ends_s is not None and ends_s != self._offer_at:
            self._offer_at = ends_s
            generation = self._generation
            self._at(ends_s, lambda: self._end_offer(generation))

    def _end_offer(self, generation: int) -> None:
        if generation == self._generation:
            self.line.offer()
            self._plan_offer()

    # The keepers

    def _spawn(self, keeper: Keeper, experiment: Experiment, name: str, reservation: Reservation) -> None:
        if name in keeper.started:
            return  # the same name is the same job
        assert not any(name in other.started for other in self.keepers.values()), f"{name} was started twice"
        keeper.started.append(name)
        keeper.running[name] = reservation
        self._at(self.now_s + experiment.duration_s * self.random.uniform(0.1, 2), lambda: self._end(keeper, name))

    def _end(self, keeper: Keeper, name: str) -> None:
        del keeper.running[name]
        keeper.ended.add(name)
        if keeper.is_connected:
            self._note_end(name)
            self._turn_all()

    # The others

    def _intrude(self) -> None:
        """A foreign process takes a card, also one that jobs of ours have, and leaves it after a while."""
        keeper = self.random.choice(list(self.keepers.values()))
        place = self.random.choice(keeper.places)
        keeper.foreign[place] = self.random.randint(0, _CARD_BYTES)
        self._soon_read(keeper)
        self._at(self.now_s + self.random.uniform(0.1, 10), lambda: self._leave(keeper, place))

    def _leave(self, keeper: Keeper, place: int) -> None:
        keeper.foreign.pop(place, None)
        self._soon_read(keeper)

    def _soon_read(self, keeper: Keeper) -> None:
        def read() -> None:
            self._look_at_cards(keeper)
            self._turn_all()

        self._soon(_READ_S, read)

    # Faults, and what must hold

    def _fault(self) -> None:
        kind = self.random.random()
        if kind < 0.4:
            self._begin()
        elif kind < 0.6:
            self._be_stuck(self.random.choice(self.experiments))
        else:
            self._lose(self.random.choice(list(self.keepers.values())))

    def _be_stuck(self, experiment: Experiment) -> None:
        experiment.stuck_until_s = self.now_s + 3.0
        self._at(experiment.stuck_until_s, self._turn_all)

    def _judge(self) -> None:
        for keeper in self.keepers.values():
            for place in keeper.places:
                users = [r for r in keeper.running.values() if place in r.places]
                assert len(users) <= min((r.share for r in users), default=1), f"{keeper.name} place {place}: {users}"
                assert sum(r.memory_bytes for r in users) <= _CARD_BYTES, f"{keeper.name} place {place}: {users}"
        if self._idles():
            if self.idle_since_s is None:
                self.idle_since_s = self.now_s
            self.longest_idle_s = max(self.longest_idle_s, self.now_s - self.idle_since_s)
            most_s = MOST_IDLE_CARD_S if self.has_gpus else MOST_IDLE_S
            assert self.longest_idle_s <= most_s, "a place is idle while a job that fits waits"
        else:
            self.idle_since_s = None

    def _idles(self) -> bool:
        """A job waits that would fit on some machine as it is, and the daemon knows every machine."""
        if not all(ledger.is_read for ledger in self.ledgers.values()):
            return False
        truth = {name: self._ledger(keeper) for name, keeper in self.keepers.items()}
        for keeper in self.keepers.values():
            truth[keeper.name].read(keeper.running)
            if self.has_gpus:
                truth[keeper.name].note_reading(keeper.reading())
        waits = [e for e in self.experiments if self._free_slots(e) > 0 and e.stuck_until_s < self.now_s]
        return any(len(truth[m].fitting(demand)) >= demand.count for e in waits for m, demand in e.demands.items())

    # Making

    def _experiment(self, number: int) -> Experiment:
        machines = sorted(self.random.sample(sorted(self.keepers), self.random.randint(1, len(self.keepers))))
        smallest = max(len(self.keepers[m].places) for m in machines)
        demand = self._demand(self.random.randint(1, smallest))
        return Experiment(
            f"e{number}",
            {machine: self._of_machine(demand) for machine in machines},
            trials=self.random.randint(1, 12),
            concurrency=self.random.randint(1, 6),
            duration_s=self.random.choice([0.1, 1, 5]),
        )

    def _demand(self, count: int) -> Demand:
        demand = Demand(count=count, share=self.random.choice([1, 1, 1, 2, 3]))
        if self.has_gpus and self.random.random() < 0.5:
            share = self.random.choice([demand.share, ANY_NUMBER])
            return replace(demand, share=share, memory_bytes=self.random.randint(1, 9))
        return demand

    def _of_machine(self, demand: Demand) -> Demand:
        """Machines may differ in whether cards with foreign processes may be used."""
        return replace(demand, use_active=self.random.random() < 0.3) if self.has_gpus else demand

    def _few(self) -> int:
        return self.random.randint(1, 4)

    def _soon(self, most_s: float, act: Callable[[], None]) -> None:
        generation = self._generation
        self._at(self.now_s + self.random.uniform(0, most_s), lambda: act() if generation == self._generation else None)

    def _at(self, when_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (when_s, next(self._numbers), act))
