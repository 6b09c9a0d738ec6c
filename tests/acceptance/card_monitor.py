"""Watches which trials use which GPU of SSH machines, only by the environments of their processes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from trial_runner import protocol

_LOOK_S = 0.05

#: A home folder, which identifies a machine, and an index.
Card = tuple[str, int]


@dataclass(frozen=True)
class TrialProcess:
    """One process of a trial."""

    process: psutil.Process
    experiment: str
    trial: str
    cards: tuple[Card, ...]

    @property
    def is_alive(self) -> bool:
        """Whether it is still the same process."""
        with suppress(psutil.Error):
            return self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE
        return False


@dataclass
class CardMonitor:
    """Watches inside its `with` block.

    `homes`: home folders of the machines. `limits`: experiment → maximum of trials on a card with one of its own.
    """

    homes: Sequence[str]
    limits: Mapping[str, int]
    findings: list[str] = field(default_factory=list)
    #: Experiment and trial.
    seen: set[tuple[str, str]] = field(default_factory=set)
    cards: set[Card] = field(default_factory=set)
    #: Maximum number of cards in use at the same time, and of trials on one card.
    most_at_once: int = 0
    most_on_one: int = 0
    _known: dict[psutil.Process, TrialProcess] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> CardMonitor:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_LOOK_S):
            self._judge(list(self._look()))

    def _judge(self, processes: Sequence[TrialProcess]) -> None:
        users: dict[Card, dict[str, TrialProcess]] = {}
        for found_process in processes:
            self.seen.add((found_process.experiment, found_process.trial))
            for card in found_process.cards:
                users.setdefault(card, {})[found_process.trial] = found_process
        for card, by_trial in users.items():
            if self._is_crowded(by_trial.values()) and self._is_crowded(s for s in by_trial.values() if s.is_alive):
                self.findings.append(f"{card} is used by {list(by_trial.values())}")
        self.cards |= users.keys()
        self.most_at_once = max(self.most_at_once, len(users))
        self.most_on_one = max([self.most_on_one, *map(len, users.values())])

    def _is_crowded(self, processes: Iterable[TrialProcess]) -> bool:
        found = list(processes)
        return len(found) > min((self.limits[found_process.experiment] for found_process in found), default=0)

    def _look(self) -> Iterator[TrialProcess]:
        """Read each process once: the environment of a trial's process does not change."""
        before, self._known = self._known, {}
        for process in psutil.process_iter():
            with suppress(psutil.Error, KeyError):
                found_process = before.get(process) or self._trial_process(process)
                if found_process.is_alive:
                    self._known[process] = found_process
                    yield found_process

    def _trial_process(self, process: psutil.Process) -> TrialProcess:
        """Raises KeyError for a process that does not belong to a trial on these machines."""
        environment = process.environ()
        home, trial = environment["HOME"], environment[protocol.ENV_TRIAL_ID]
        if home not in self.homes:
            raise KeyError(home)
        indices = [int(index) for index in environment[protocol.ENV_GPUS].split(",") if index]
        experiment = environment[protocol.ENV_EXPERIMENT_ID]
        return TrialProcess(process, experiment, trial, tuple((home, index) for index in indices))
