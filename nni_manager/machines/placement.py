"""One training service's share of the daemon's machines: what its jobs need, and where and when they may have it.

Also the reasons why a machine has no place for a job: as sentences for users, and as data for programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from nni_manager.domain.errors import PlatformUnavailable, SubmitRejected
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.machines.gpu_sample import in_words
from nni_manager.machines.ledger import ANY_NUMBER, Demand, Demands, MachineLedger, Reservation, User
from nni_manager.machines.waiting_queue import Places
from nni_manager.platform_kit.contract import JobPlan


class Placement:
    """The share of one training service.

    `demands`: of every job, by machine, in the order of the config. `code`: wait code when no place is free. `wake`:
    called when room, or the reason for no room, changes.
    """

    def __init__(
        self, places: Places, owner: str, *, demands: Demands, code: WaitCode, wake: Callable[[], None]
    ) -> None:
        self._places = places
        self._owner = owner
        self._all = dict(demands)
        #: The demands on the reachable machines; see `reach`.
        self._demands = self._all
        #: Machine → why it is unreachable.
        self._away: Mapping[str, str] = {}
        self._code = code
        self._wake = wake
        self._wanted = 0

    def room(self) -> int:
        """The number of further jobs that fit now."""
        return self._places.line.room(self._owner, self._demands)

    def want(self, jobs: int) -> None:
        """Notes the number of jobs that wait for room; 0: none."""
        self._wanted = jobs
        self._places.want(self._owner, jobs, self._demands, self._wake)

    def reach(self, away: Mapping[str, str]) -> None:
        """Notes which machines are unreachable now, and why; all others are reachable."""
        if self._away == away:
            return
        self._away, reached = dict(away), {name: d for name, d in self._all.items() if name not in away}
        if reached.keys() != self._demands.keys():
            self._demands, wanted = reached, self._wanted
            self.want(0)
            self.want(wanted)

    def reserve(self, job_name: str, *, count: int | None = None, is_repeat: bool = False) -> Reservation | None:
        """Places for a job about to start, `count` of them if the job sets a number; None: there are none, or another
        experiment comes first."""
        demands = self._demands
        if count is not None:
            demands = {name: replace(demand, count=count) for name, demand in demands.items()}
        found = self._places.line.reserve(self._owner, job_name, demands, is_repeat=is_repeat)
        self._places.watch_offers()
        return found

    @contextmanager
    def held(self, reservation: Reservation | None, job_name: str) -> Iterator[None]:
        """A context that releases the places after an error that proves that the job did not start."""
        try:
            yield
        except (SubmitRejected, PlatformUnavailable) as error:
            if reservation is not None and (isinstance(error, SubmitRejected) or error.refused):
                self.release(reservation, job_name)
            raise

    def release(self, reservation: Reservation, job_name: str) -> None:
        """Releases the places of a job that certainly did not start."""
        machine = self._places.find(reservation.machine)
        if machine is not None and machine.release(job_name):
            self._places.note_change()

    # For display

    def why(self) -> Wait:
        """The reason why it has no room: one sentence per machine."""
        said = [
            why_no_place(machine, self._demands[machine.name]) or f"others have waited longer for {machine.called}"
            for machine in self._known()
        ]
        away = list(self._away.values())
        if not said:
            return Wait(code=WaitCode.MACHINE_DOWN, sentence="; ".join(away) or "no machine is reachable")
        details = {machine.called: on_places(machine, self._demands[machine.name]) for machine in self._known()}
        return Wait(code=self._code, sentence="; ".join(said + away), details={"machines": details})

    def plan(self, jobs: int) -> JobPlan:
        """The places that a number of jobs would get now, and for each machine the reason why it takes no more."""
        found, after = self._places.try_out(self._demands, jobs)
        machines = {machine.name: machine for machine in after}
        elsewhere = {m.called: why for m in after if (why := why_no_place(m, self._demands[m.name]))}
        known = {name: self._places.find(name) for name in self._away}
        away = {name if (m := known[name]) is None else m.called: why for name, why in self._away.items()}
        return JobPlan(
            places=[machines[one.machine].in_words(one.places) for one in found],
            why_not={**elsewhere, **away},
        )

    def _known(self) -> Sequence[MachineLedger]:
        return [machine for name in self._demands if (machine := self._places.find(name)) is not None]


#: Maximum number of places in a sentence; the details contain all.
_MOST_SAID = 4


def why_no_place(machine: MachineLedger, demand: Demand) -> str:
    """The reason why the machine does not fit now; empty: it does."""
    if not machine.is_read:
        return f"the jobs on {machine.called} are not known yet"
    if demand.count == 0:
        return ""
    if (unread := _unread(machine)) or (never := never_fits(machine, demand)):
        return unread or never
    if len(fitting := machine.fitting(demand)) >= demand.count:
        return ""
    reasons = [why for place in machine.allowed(demand) if (why := _of_place(machine, place, demand))]
    said = "; ".join(reasons[:_MOST_SAID]) + (f"; and {len(reasons) - _MOST_SAID} more" if reasons[_MOST_SAID:] else "")
    few = f"{len(fitting)} of the {demand.count} that a trial needs are free: " if demand.count > 1 else ""
    return f"{few}{said}"


def never_fits(machine: MachineLedger, demand: Demand) -> str:
    """The reason why no job would fit even on the empty machine; empty: none is known."""
    if machine.reading is None or machine.reading.error or not machine.has_gpus:
        return ""
    if not machine.cards:
        return f"{machine.called} has no GPU"
    allowed = machine.allowed(demand)
    if len(allowed) < demand.count:
        gpus = "1 GPU" if len(machine.cards) == 1 else f"{len(machine.cards)} GPUs"
        chosen = "" if demand.only is None else f", {len(allowed)} of them in gpuIndices"
        return f"{machine.called} has {gpus}{chosen}, and a trial needs {demand.count}"
    sizes = [machine.cards[place].memory_bytes or 0 for place in allowed]
    if sum(size >= demand.memory_bytes for size in sizes) < demand.count:
        most = in_words(max(sizes))
        return f"the GPUs of {machine.called} have at most {most}, and a trial needs {in_words(demand.memory_bytes)}"
    return ""


def on_places(machine: MachineLedger, demand: Demand) -> dict[str, Any]:
    """The jobs and processes on each place of a machine, for programs."""
    users = machine.users()
    return {str(place): _on_place(machine, place, users.get(place, ())) for place in machine.allowed(demand)}


def _unread(machine: MachineLedger) -> str:
    if not machine.has_gpus or (machine.reading is not None and not machine.reading.error):
        return ""
    if machine.reading is None:
        return f"the GPUs of {machine.called} have not been read yet"
    return f"the GPUs of {machine.called} cannot be read: {machine.reading.error}"


def _of_place(machine: MachineLedger, place: int, demand: Demand) -> str:
    """The reason why a place is not available; empty: it is."""
    users = machine.users().get(place, [])
    if machine.fits(place, demand, users):
        return ""
    name = f"{'gpu' if machine.has_gpus else 'place'} {place} on {machine.called}"
    card = machine.cards.get(place)
    if card is not None and card.error:
        return f"{name} is out of order: {card.error}"
    if card is not None and not demand.use_active and machine.foreign_on(card, users):
        return f"{name} busy: {', '.join(map(str, card.foreign))}"
    limit = min([demand.share, *(user.share for user in users)])
    if len(users) >= limit:
        has = "has" if limit == 1 else f"has {len(users)} of at most {limit} trials:"
        return f"{name} {has} {', '.join(user.job for user in users)}"
    free = in_words(max(0, machine.free_bytes(place, users)))
    return f"{name} has {free} free of the {in_words(demand.memory_bytes)} that a trial needs"


def _on_place(machine: MachineLedger, place: int, users: Sequence[User]) -> Mapping[str, object]:
    card = machine.cards.get(place)
    found: dict[str, object] = {"jobs": [user.job for user in users]}
    if card is not None:
        found["processes"] = [
            {"pid": process.pid, "user": process.user, "memoryBytes": process.memory_bytes} for process in card.foreign
        ]
        if card.error:
            found["error"] = card.error
    if limits := [user.share for user in users if user.share < ANY_NUMBER]:
        found["limit"] = min(limits)
    return found
