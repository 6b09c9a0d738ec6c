"""One training service's share of the daemon's machines: what its jobs need, where they may have it, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from nni_manager.domain.errors import PlatformUnavailable, SubmitRejected
from nni_manager.domain.wait import Wait, WaitCode
from nni_manager.platform_kit.ledger import Demand, MachineLedger, Reservation
from nni_manager.platform_kit.places import Places


class Placement:
    """`demand`: of every job; `code`: what the places are, when there is none; `wake`: called when there is room."""

    def __init__(
        self, places: Places, owner: str, *, demand: Demand, machines: Sequence[str], code: WaitCode,
        wake: Callable[[], None],
    ) -> None:  # fmt: skip
        self._places = places
        self._owner = owner
        self.demand = demand
        self._code = code
        #: Those that can be reached; see `reach`.
        self._machines = tuple(machines)
        self._wake = wake
        self._wanted = 0

    def room(self) -> int:
        """How many more jobs fit now."""
        return self._places.line.room(self._owner, self.demand, self._machines)

    def want(self, jobs: int) -> None:
        """So many jobs wait for room; 0: none."""
        self._wanted = jobs
        self._places.line.want(self._owner, jobs, self.demand, self._machines, self._wake)
        self._places.watch_offers()

    def reach(self, machines: Sequence[str]) -> None:
        """Only these can be reached now."""
        if self._machines != tuple(machines):
            self._machines, wanted = tuple(machines), self._wanted
            self.want(0)
            self.want(wanted)

    def reserve(self, job_name: str, *, is_repeat: bool = False) -> Reservation | None:
        """Places for a job about to be started; None: there are none, or it is somebody else's turn."""
        found = self._places.line.reserve(self._owner, job_name, self.demand, self._machines, is_repeat=is_repeat)
        self._places.watch_offers()
        return found

    @contextmanager
    def held(self, reservation: Reservation | None, job_name: str) -> Iterator[None]:
        """The places are given back when what is done here raises that the job was certainly not started."""
        try:
            yield
        except (SubmitRejected, PlatformUnavailable) as error:
            if reservation is not None and (isinstance(error, SubmitRejected) or error.refused):
                self.release(reservation, job_name)
            raise

    def release(self, reservation: Reservation, job_name: str) -> None:
        """The job was certainly not started."""
        machine = self._places.find(reservation.machine)
        if machine is not None and machine.release(job_name):
            self._places.note_change()

    def why(self) -> Wait:
        """Why there is no room: what each machine says."""
        known = [machine for name in self._machines if (machine := self._places.find(name)) is not None]
        sentences = {_plain(machine): self._why(machine) for machine in known}
        if not sentences:
            return Wait(code=WaitCode.MACHINE_DOWN, sentence="no machine can be reached")
        text = "; ".join(f"{name}: {sentence}" for name, sentence in sentences.items())
        return Wait(code=self._code, sentence=text, details={"machines": _details(known)})

    def _why(self, machine: MachineLedger) -> str:
        if not machine.is_read:
            return "which jobs run there is not known yet"
        fitting, count = len(machine.fitting(self.demand)), self.demand.count
        if fitting >= count:
            return "others wait longer"
        return f"{fitting} of the {count} that a trial needs are free" if count > 1 else "none is free"


def _details(machines: Sequence[MachineLedger]) -> Mapping[str, object]:
    """Machine → place → jobs that have it."""
    return {
        _plain(machine): {str(place): [name for name, _ in users] for place, users in sorted(machine.users().items())}
        for machine in machines
    }


def _plain(machine: MachineLedger) -> str:
    """Its name without its kind."""
    return machine.name.rpartition(":")[2]
