"""Watches which trials occupy each place of each machine, only by processes and the keeper's records."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.live_daemon import Daemon
from trial_runner import protocol

#: Seconds between two checks; a longer pause on a busy machine counts as the second value.
_LOOK_S, _MOST_OF_A_LOOK_S = 0.05, 0.1
_NS = 1e9

Place = tuple[str, int]


@dataclass(frozen=True)
class TrialProcess:
    """One process of a trial."""

    pid: int
    experiment: str
    trial: str
    places: tuple[Place, ...]


@dataclass
class PlaceMonitor:
    """Watches inside its `with` block. `waits`: whether a trial is waiting (the tuner may have proposed none).

    `limits`: experiment → maximum number of trials on a place with one of its own; default 1.
    """

    data: Path
    machines: Mapping[str, int]
    waits: Callable[[], bool]
    #: The daemon's process; changes with every start.
    daemon: Callable[[], int]
    limits: Mapping[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    #: Longest time that a place was free while the daemon was ready and a trial waited; time in which daemon or keeper
    #: would have run and another process had the processor is not counted.
    longest_idle_s: float = 0.0
    longest_idle: str = ""
    most_at_once: int = 0
    most_on_one: int = 0
    _ready_s: float = 0.0
    _is_ready: bool = False
    _idle_s: dict[Place, float] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> PlaceMonitor:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def note_ready(self, is_ready: bool) -> None:
        """The daemon says that it is, or is about to be killed."""
        self._idle_s.clear()
        self._is_ready, self._ready_s = is_ready, time.monotonic()

    def _run(self) -> None:
        looked, kept_off = time.monotonic(), 0.0
        while not self._over.wait(_LOOK_S):
            processes = list(self._look())
            now, delay = time.monotonic(), sum(map(_kept_off_s, self._ours()))
            self._judge_sharing(processes)
            passed_s = min(now - looked, _MOST_OF_A_LOOK_S) - max(0.0, delay - kept_off)
            self._judge_idling(max(0.0, passed_s))
            looked, kept_off = now, delay

    def _ours(self) -> list[int]:
        return [self.daemon(), *self._keeper()]

    def _keeper(self) -> Iterator[int]:
        with suppress(OSError, ValueError, IndexError):
            yield int((self.data / "keeper" / "keeper.lock").read_text().split()[0])

    def _look(self) -> Iterator[TrialProcess]:
        for keeper in self._keeper():
            with suppress(OSError, ValueError):
                for pid in _descendants(keeper):
                    with suppress(OSError, KeyError):
                        yield _trial_process(pid)

    def _judge_sharing(self, processes: Sequence[TrialProcess]) -> None:
        users: dict[Place, dict[str, TrialProcess]] = {}
        for found_process in processes:
            if found_process.trial not in self.seen:
                self.seen.add(found_process.trial)
                self._compare(found_process)
            for place in found_process.places:
                users.setdefault(place, {})[found_process.trial] = found_process
        for place, by_trial in users.items():
            if self._is_crowded(by_trial.values()) and self._is_crowded(filter(_is_alive, by_trial.values())):
                self.findings.append(f"{place} is used by {list(by_trial.values())}")
        self.most_at_once = max(self.most_at_once, len(users))
        self.most_on_one = max([self.most_on_one, *map(len, users.values())])
        self._taken = set(users)

    def _is_crowded(self, processes: Iterable[TrialProcess]) -> bool:
        found = list(processes)
        return len(found) > min((self.limits.get(found_process.experiment, 1) for found_process in found), default=0)

    def _judge_idling(self, passed_s: float) -> None:
        if not self._is_ready or not self.waits():
            self._idle_s.clear()
            return
        for machine, count in self.machines.items():
            for place in ((machine, index) for index in range(count)):
                self._idle_s[place] = 0.0 if place in self._taken else self._idle_s.get(place, 0.0) + passed_s
        place, idle_s = max(self._idle_s.items(), key=lambda item: item[1])
        if idle_s > self.longest_idle_s:
            self.longest_idle_s = idle_s
            when = f"{time.monotonic() - self._ready_s:.1f} s after a start, {len(self.seen)} trials seen"
            self.longest_idle = f"{place} for {idle_s:.2f} s, {when}"

    def _compare(self, found_process: TrialProcess) -> None:
        """The keeper's reservation, written before the start of the trial."""
        for path in (self.data / "keeper" / "jobs").glob(f"*_{found_process.trial}*.jsonl"):
            with suppress(OSError, ValueError, KeyError):
                reservation = json.loads(path.read_text().splitlines()[0])["reservation"]
                machine = reservation["machine"].rpartition(":")[2]
                if tuple((machine, place) for place in reservation["places"]) != found_process.places:
                    self.findings.append(f"{found_process} runs elsewhere than its keeper says: {reservation}")


def waiting(daemon: Daemon, *ids: str) -> Callable[[], bool]:
    """Whether a trial of these experiments waits for a place; False if no daemon answers."""

    def waits() -> bool:
        with suppress(httpx.HTTPError, OSError):
            return any(trial["service"] is None for id_ in ids for trial in daemon.trials(id_, status="WAITING"))
        return False

    return waits


def _kept_off_s(pid: int) -> float:
    """Seconds since its start that its threads were ready but did not run."""
    waited_ns = 0
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                waited_ns += int((task / "schedstat").read_text().split()[1])
    return waited_ns / _NS


def _trial_process(pid: int) -> TrialProcess:
    """Raises KeyError for a process that does not belong to a trial."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    environment = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    machine, indices = environment.get("NNI_MACHINE", "this machine"), environment[protocol.ENV_GPUS]
    places = tuple((machine, int(index)) for index in indices.split(",") if index)
    return TrialProcess(pid, environment[protocol.ENV_EXPERIMENT_ID], environment[protocol.ENV_TRIAL_ID], places)


def _is_alive(found_process: TrialProcess) -> bool:
    with suppress(OSError, KeyError):
        return (
            _trial_process(found_process.pid) == found_process
            and " Z " not in Path(f"/proc/{found_process.pid}/stat").read_text().rpartition(")")[2]
        )
    return False


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                yield int(child)
                with suppress(OSError):
                    yield from _descendants(int(child))
