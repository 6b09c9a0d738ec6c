"""One run: an experiment on three machines with scheduled faults until its trials have ended, and the checks."""

from __future__ import annotations

import heapq
import itertools
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.chaos import judge
from tests.chaos.faults import Act, Struck, begin, schedule
from tests.chaos.judge import Faults, Findings, Size
from tests.live_daemon import Daemon, running_daemon
from tests.namespaced_machines import NamespacedMachine, namespaced_machines

MACHINES = 3
#: Number of ended trials at the first measurement of the daemon, after which faults start.
_CALM_TRIALS = 12
#: Seconds between two checks of the number of ended trials.
_LOOK_S = 0.5
#: Seconds that a machine may be away before its trials are retried elsewhere.
_MACHINE_GRACE_S = 600.0
#: Seconds for the remaining trials to end after the last fault.
_REST_S = 240.0

Say = Callable[[str], None]


@dataclass
class Run:
    """`trials`: their number; `limit_s`: time after which faults end."""

    daemon: Daemon
    machines: list[NamespacedMachine]
    folder: Path
    trials: int
    seed: int
    limit_s: float
    say: Say
    #: Faults that happened.
    made: list[Struck] = field(default_factory=list)
    id: str = ""
    took_s: float = 0.0
    #: Findings during the run.
    complaints: list[str] = field(default_factory=list)
    _begun_s: float = 0.0
    #: Functions that undo faults, by end time.
    _mends: list[tuple[float, int, Struck, Act]] = field(default_factory=list)

    @property
    def broken(self) -> Counter[str]:
        """Kind of fault → number."""
        return Counter(one.fault.kind for one in self.made)

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    def go(self) -> Findings:
        self.notes.mkdir()
        self.id = self.daemon.create(self._config(), self._code())
        self.daemon.wait_for(self.id, lambda state: _ended(state) >= _CALM_TRIALS, timeout_s=120)
        before = judge.size(self.daemon, self.machines)
        self._begun_s = time.monotonic()
        self._break_until_done()
        self._rest()
        self.took_s = time.monotonic() - self._begun_s
        return self._judge(before)

    def _break_until_done(self) -> None:
        numbers = itertools.count()
        for fault in schedule(self.seed, len(self.machines)):
            if not self._wait(fault.at_s):
                return
            self.say(str(fault))
            begun_ms = _now_ms()
            mend = begin(fault, self.machines, self.daemon, self.complaints.append)
            self.made.append(struck := Struck(fault=fault, begun_ms=begun_ms, done_ms=_now_ms()))
            if mend is not None:
                heapq.heappush(self._mends, (fault.at_s + fault.lasts_s, next(numbers), struck, mend))

    def _wait(self, until_s: float) -> bool:
        """Wait until a time of the schedule, and undo faults that end by then. False: all trials have ended."""
        while self._mends and self._mends[0][0] <= until_s:
            self._pause(self._mends[0][0])
            self._mend()
        while self._now_s < until_s:
            self._pause(min(until_s, self._now_s + _LOOK_S))
            if self._now_s > self.limit_s or self._is_done():
                return False
        return True

    def _mend(self) -> None:
        _, _, struck, mend = heapq.heappop(self._mends)
        self.say(f"{' ' * 10} over: {struck.fault}")
        mend()
        struck.over_ms = _now_ms()

    def _rest(self) -> None:
        """Undo all faults and wait for the remaining trials."""
        while self._mends:
            self._mend()
        self.daemon.wait(self.id, "DONE", timeout_s=_REST_S + self.trials / 4)

    def _judge(self, before: Size) -> Findings:
        faults = Faults(self.made, [machine.address for machine in self.machines], _MACHINE_GRACE_S)
        found = judge.trials(self.daemon, self.id, self.notes, self.trials, faults)
        found.faults.extend(self.complaints)
        judge.daemon_is_as_before(found, before, self.daemon, self.machines)
        self.daemon.call("POST", f"/experiments/{self.id}/stop")
        judge.nothing_runs(found, self.machines)
        return found

    @property
    def _now_s(self) -> float:
        return time.monotonic() - self._begun_s

    def _pause(self, until_s: float) -> None:
        time.sleep(max(0.0, until_s - self._now_s))

    def _is_done(self) -> bool:
        try:
            return str(self.daemon.status(self.id)["status"]) == "DONE"
        except (OSError, httpx.HTTPError):  # it is the daemon that is broken now
            return False

    def _code(self) -> Path:
        code = self.folder / "code"
        code.mkdir()
        shutil.copy(Path(__file__).with_name("trial.sh"), code)
        return code

    def _config(self) -> dict[str, Any]:
        python = str(Path(shutil.which("python3") or "").parent)
        return {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": f"sh trial.sh {self.notes}",
            "trialCodeDirectory": ".",
            "trialConcurrency": 12,
            "maxTrialNumber": self.trials,
            "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
            "trainingService": {
                "platform": "remote",
                "machineGracePeriod": f"{_MACHINE_GRACE_S:.0f}s",
                "machineList": [machine.entry(pythonPath=python) for machine in self.machines],
            },
        }


@contextmanager
def prepared(
    folder: Path, *, trials: int, seed: int, limit_s: float, say: Say = print, network: int = 83
) -> Iterator[Run]:
    """Machines and a daemon below a writable `folder`."""
    with namespaced_machines(MACHINES, folder / "machines", network=network) as machines:
        with running_daemon(folder) as daemon:
            yield Run(daemon, machines, folder, trials, seed, limit_s, say)


def _now_ms() -> float:
    return time.time() * 1000


def _ended(state: dict[str, Any]) -> int:
    return int(state["counts"].get("SUCCEEDED", 0))
