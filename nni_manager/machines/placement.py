"""One training service's share of the daemon's machines: what its jobs need, and where and when they may have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from nni_manager.domain.errors import PlatformUnavailable, SubmitRejected
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.machines import placement_reasons
from nni_manager.machines.ledger import Demands, MachineLedger, Reservation
from nni_manager.machines.waiting_queue import Places
from nni_manager.platform_kit.contract import JobPlan


class Placement:
    """The share of one training service. `demands`: of every job, by the machines that it may run on, in the order
    of the config; `code`: what the places are, when there is none; `wake`: called when there is room, or another
    reason why there is none."""

    def __init__(
        self, places: Places, owner: str, *, demands: Demands, code: WaitCode, wake: Callable[[], None]
    ) -> None:
        self._places = places
        self._owner = owner
        self._all = dict(demands)
        #: The demands on the machines that can be reached; see `reach`.
        self._demands = self._all
        #: Machine → why it cannot be reached.
        self._away: Mapping[str, str] = {}
        self._code = code
        self._wake = wake
        self._wanted = 0

    def room(self) -> int:
        """The number of further jobs that fit now."""
        return self._places.line.room(self._owner, self._demands)

    def want(self, jobs: int) -> None:
        """Notes that so many jobs wait for room; 0: none."""
        self._wanted = jobs
        self._places.want(self._owner, jobs, self._demands, self._wake)

    def reach(self, away: Mapping[str, str]) -> None:
        """Notes which machines cannot be reached now, and why; all others can."""
        if self._away == away:
            return
        self._away, reached = dict(away), {name: d for name, d in self._all.items() if name not in away}
        if reached.keys() != self._demands.keys():
            self._demands, wanted = reached, self._wanted
            self.want(0)
            self.want(wanted)

    def change(self, demands: Demands) -> None:
        """Takes other machines, or other needs of a job, while the experiment runs."""
        self._all, away = dict(demands), self._away
        self._demands, self._away = self._all, {}
        wanted = self._wanted
        self.want(0)
        self.reach({name: why for name, why in away.items() if name in demands})
        self.want(wanted)

    def reserve(self, job_name: str, *, count: int | None = None, is_repeat: bool = False) -> Reservation | None:
        """Places for a job about to be started, `count` of them where the job sets a number; None: there are none, or
        another experiment comes first."""
        demands = self._demands
        if count is not None:
            demands = {name: replace(demand, count=count) for name, demand in demands.items()}
        found = self._places.line.reserve(self._owner, job_name, demands, is_repeat=is_repeat)
        self._places.watch_offers()
        return found

    @contextmanager
    def held(self, reservation: Reservation | None, job_name: str) -> Iterator[None]:
        """A context that gives the places back on an error that says that the job was certainly not started."""
        try:
            yield
        except (SubmitRejected, PlatformUnavailable) as error:
            if reservation is not None and (isinstance(error, SubmitRejected) or error.refused):
                self.release(reservation, job_name)
            raise

    def release(self, reservation: Reservation, job_name: str) -> None:
        """Gives back the places of a job that was certainly not started."""
        machine = self._places.find(reservation.machine)
        if machine is not None and machine.release(job_name):
            self._places.note_change()

    # In words

    def why(self) -> Wait:
        """The reason for which there is no room: what each machine says."""
        said = [self._why(machine) for machine in self._known()]
        away = list(self._away.values())
        if not said:
            return Wait(code=WaitCode.MACHINE_DOWN, sentence="; ".join(away) or "no machine can be reached")
        details = {
            machine.called: placement_reasons.details(machine, self._demands[machine.name]) for machine in self._known()
        }
        return Wait(code=self._code, sentence="; ".join(said + away), details={"machines": details})

    def _why(self, machine: MachineLedger) -> str:
        return (
            placement_reasons.sentence(machine, self._demands[machine.name])
            or f"others wait longer for {machine.called}"
        )

    def plan(self, jobs: int) -> JobPlan:
        """The places that so many jobs would get now, and for each machine the reason why it takes no more."""
        found, after = self._places.try_out(self._demands, jobs)
        machines = {machine.name: machine for machine in after}
        elsewhere = {m.called: why for m in after if (why := placement_reasons.sentence(m, self._demands[m.name]))}
        return JobPlan(
            places=[machines[one.machine].in_words(one.places) for one in found],
            why_not={**elsewhere, **{self._called(name): why for name, why in self._away.items()}},
        )

    def _known(self) -> Sequence[MachineLedger]:
        return [machine for name in self._demands if (machine := self._places.find(name)) is not None]

    def _called(self, name: str) -> str:
        machine = self._places.find(name)
        return name if machine is None else machine.called
