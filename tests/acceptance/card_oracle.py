"""Judges who has which card of which machine reached by SSH, from what trials' processes see and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from trial_runner import protocol

_LOOK_S = 0.05

#: A home folder, which machines are told apart by, and an index.
Card = tuple[str, int]


@dataclass(frozen=True)
class Sight:
    """One process of a trial."""

    process: psutil.Process
    experiment: str
    trial: str
    cards: tuple[Card, ...]

    @property
    def is_alive(self) -> bool:
        """Still the same process."""
        with suppress(psutil.Error):
            return self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE
        return False


@dataclass
class CardOracle:
    """Looks until it is left. `homes`: of the machines; `limits`: experiment → how many of its trials may share a card
    with others."""

    homes: Sequence[str]
    limits: Mapping[str, int]
    findings: list[str] = field(default_factory=list)
    #: Experiment and trial.
    seen: set[tuple[str, str]] = field(default_factory=set)
    cards: set[Card] = field(default_factory=set)
    #: Most cards in use at a time, and most trials on one.
    most_at_once: int = 0
    most_on_one: int = 0
    _known: dict[psutil.Process, Sight] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> CardOracle:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_LOOK_S):
            self._judge(list(self._look()))

    def _judge(self, sights: Sequence[Sight]) -> None:
        users: dict[Card, dict[str, Sight]] = {}
        for sight in sights:
            self.seen.add((sight.experiment, sight.trial))
            for card in sight.cards:
                users.setdefault(card, {})[sight.trial] = sight
        for card, by_trial in users.items():
            if self._is_crowded(by_trial.values()) and self._is_crowded(s for s in by_trial.values() if s.is_alive):
                self.findings.append(f"{card} is had by {list(by_trial.values())}")
        self.cards |= users.keys()
        self.most_at_once = max(self.most_at_once, len(users))
        self.most_on_one = max([self.most_on_one, *map(len, users.values())])

    def _is_crowded(self, sights: Iterable[Sight]) -> bool:
        found = list(sights)
        return len(found) > min((self.limits[sight.experiment] for sight in found), default=0)

    def _look(self) -> Iterator[Sight]:
        """A process is read once: what it sees does not change any more when it is a trial's."""
        before, self._known = self._known, {}
        for process in psutil.process_iter():
            with suppress(psutil.Error, KeyError):
                sight = before.get(process) or self._sight(process)
                if sight.is_alive:
                    self._known[process] = sight
                    yield sight

    def _sight(self, process: psutil.Process) -> Sight:
        """Raises KeyError for one that is no trial's of these machines."""
        environment = process.environ()
        home, trial = environment["HOME"], environment[protocol.ENV_TRIAL_ID]
        if home not in self.homes:
            raise KeyError(home)
        indices = [int(index) for index in environment[protocol.ENV_GPUS].split(",") if index]
        experiment = environment[protocol.ENV_EXPERIMENT_ID]
        return Sight(process, experiment, trial, tuple((home, index) for index in indices))
