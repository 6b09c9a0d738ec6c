"""Faults, their times and durations, derived from a seed before the run."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil

from tests.live_daemon import Daemon
from tests.namespaced_machines import NamespacedMachine

#: Function that causes a fault and returns the function that undoes it.
Act = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`at_s`: since the first trial; `lasts_s`: 0 if it need not be undone."""

    at_s: float
    kind: str
    #: Number of the machine, from 0; None: the daemon's.
    machine: int | None
    lasts_s: float

    def __str__(self) -> str:
        where = "daemon" if self.machine is None else f"machine{self.machine + 1}"
        return f"{self.at_s:7.2f} s {where:<8} {self.kind}" + (f" for {self.lasts_s:.1f} s" if self.lasts_s else "")


@dataclass(slots=True, kw_only=True)
class Struck:
    """A fault as it happened. Times in ms since the epoch: before it, after it took effect, and after its end."""

    fault: Fault
    begun_ms: float
    done_ms: float
    over_ms: float | None = None

    def may_have_ended(self, job: Job, grace_s: float) -> bool:
        """Whether this fault can have ended that job.

        That is so if the machine lost power during the job, was unreachable for longer than `grace_s`, or if its keeper
        was killed together with the process that was about to become the command. Jobs outlive everything else.
        """
        if self.fault.machine != job.machine or job.ended_ms < self.begun_ms - _CLOCKS_MS:
            return False
        if job.started_ms > self.done_ms + _CLOCKS_MS:
            return False
        if self.fault.kind in _SILENCING:
            return self.over_ms is not None and self.over_ms - self.begun_ms > grace_s * 1000
        return self.fault.kind == "power" or ("keeper" in self.fault.kind and not job.has_begun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A lost job, from its attempt. Times in ms since the epoch.

    `machine`: its number, from 0; `has_begun`: its command wrote a note.
    """

    machine: int
    started_ms: int
    ended_ms: int
    has_begun: bool


#: Process times have a resolution of one tick, 10 ms.
_CLOCKS_MS = 100
#: Faults that end only the connection; long ones also lose the state of jobs.
_SILENCING = ("cut", "drop", "frozen keeper")

#: Kind of fault → weight, minimum and maximum duration in seconds.
_OF_A_MACHINE = {
    "power": (3, 0.2, 6.0),
    "cut": (3, 0.5, 20.0),
    "drop": (3, 0.5, 45.0),
    "sshd": (4, 0.0, 0.0),
    "keeper": (4, 0.0, 0.0),
    "frozen keeper": (2, 1.0, 40.0),
    "sshd and keeper": (1, 0.0, 0.0),
}
_OF_THE_DAEMON = {"kill": (3, 0.0, 3.0), "restart": (1, 0.0, 3.0)}
#: Seconds between a fault's end and the next fault of the same machine, and of the daemon.
_PAUSE_S = (1.0, 12.0)
_DAEMON_PAUSE_S = (8.0, 30.0)


def schedule(seed: int, machines: int) -> Iterator[Fault]:
    """An endless schedule, ordered by time. A machine has one fault at a time, and so has the daemon."""
    series = [_series(seed, number) for number in [*range(machines), None]]
    return heapq.merge(*series, key=lambda fault: fault.at_s)


def _series(seed: int, machine: int | None) -> Iterator[Fault]:
    draw = random.Random(f"{seed} {machine}")
    kinds, pause = (_OF_A_MACHINE, _PAUSE_S) if machine is not None else (_OF_THE_DAEMON, _DAEMON_PAUSE_S)
    at_s = 0.0
    while True:
        at_s += draw.uniform(*pause)
        [kind] = draw.choices(list(kinds), [often for often, _, _ in kinds.values()])
        # short faults are more frequent, because they hit running operations
        lasts_s = kinds[kind][1] + (kinds[kind][2] - kinds[kind][1]) * draw.random() ** 2
        yield Fault(at_s=at_s, kind=kind, machine=machine, lasts_s=lasts_s)
        at_s += lasts_s


def begin(
    fault: Fault, machines: list[NamespacedMachine], daemon: Daemon, complain: Callable[[str], None]
) -> Act | None:
    """Cause a fault; returns the function that undoes it; None: it ends on its own. `complain`: receives findings."""
    if fault.machine is None:
        return _break_daemon(fault, daemon, complain)
    machine = machines[fault.machine]
    match fault.kind:
        case "power":
            machine.off()
            return machine.on
        case "cut":
            machine.cut()
            return machine.heal
        case "drop":
            machine.drop()
            return machine.heal
        case "frozen keeper":
            return _freeze(machine.keepers())
    if "sshd" in fault.kind:
        machine.kill_sshd()
    if "keeper" in fault.kind:
        machine.kill_keeper()
    return None


def _freeze(processes: list[psutil.Process]) -> Act:
    def go_on() -> None:
        for process in processes:
            with suppress(psutil.Error):
                process.resume()

    for process in processes:
        with suppress(psutil.Error):
            process.suspend()
    return go_on


def _break_daemon(fault: Fault, daemon: Daemon, complain: Callable[[str], None]) -> Act:
    if fault.kind == "kill":
        daemon.kill()
    else:
        try:
            daemon.terminate()
        except AssertionError as error:
            complain(f"at {fault.at_s:.0f} s: {error}")
    return lambda: _start(daemon)


def _start(daemon: Daemon) -> None:
    daemon.start()
