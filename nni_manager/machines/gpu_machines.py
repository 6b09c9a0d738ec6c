"""The machines of one training service, each with a keeper: where the next job runs, and on which GPUs.

How an adapter whose jobs run under keepers uses this:

* Create a `MachinePool` with one `PoolMachine` per machine: the `KeeperMachine` (its name in the ledger, the same in
  all experiments; its display name; `places` None if trials need GPUs), what a trial needs of it (`demand_of`), and the
  `KeeperJobs` created with the key of that keeper's connection.
* While entering the adapter, enter each `KeeperJobs` with its machine: ``jobs.enter([machine])``.
* In `submit` of a job that needs GPUs: ``found = await pool.reserve(spec)``. Return a `NoRoom` unchanged; otherwise
  start the job at ``found.jobs`` with `gpu_environment` in its environment, within ``pool.held(found, name)``.
* The reports of `KeeperJobs.reports` have the GPUs in `place`.
* Forward `room`, `want` and `plan` to the pool, and call ``want(0)`` on leaving. ``pool.reach({name: sentence})``
  says which machines are unreachable: they get no jobs, and the sentence becomes part of the wait reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from nni_manager.domain.errors import PlatformError, PlatformUnavailable
from nni_manager.domain.job import JobSpec
from nni_manager.domain.service import WaitCode
from nni_manager.machines import placement
from nni_manager.machines.keeper.jobs import KeeperJobs
from nni_manager.machines.ledger import ANY_NUMBER, Demand, MachineLedger, Reservation
from nni_manager.machines.placement import Placement
from nni_manager.machines.waiting_queue import KeeperMachine, Places
from nni_manager.platform_kit.contract import Host, JobPlan, NoRoom, PreflightFinding, Room, Severity
from trial_runner import protocol

_MIB = 2**20


def demand_of(
    gpu_number: int | None,
    *,
    gpu_indices: Sequence[int] | None,
    max_trial_number_per_gpu: int | None,
    use_active_gpu: bool | None,
    gpu_memory_mib: int | None = None,
) -> Demand:
    """What a trial needs of a machine's GPUs, from the fields of the machine or section.

    `max_trial_number_per_gpu` None: 1, or as many as memory allows.
    """
    if not gpu_number:
        return Demand(count=0)
    by_memory = ANY_NUMBER if gpu_memory_mib else 1
    return Demand(
        count=gpu_number,
        share=max_trial_number_per_gpu or by_memory,
        use_active=bool(use_active_gpu),
        only=None if gpu_indices is None else frozenset(gpu_indices),
        memory_bytes=(gpu_memory_mib or 0) * _MIB,
    )


def gpu_environment(spec: JobSpec, reservation: Reservation | None) -> dict[str, str]:
    """Variables that make a job's GPUs visible. A number of None adds no variables; 0, or no reservation, hides all
    GPUs."""
    if spec.gpu_number is None:
        return {}
    if spec.gpu_number == 0 or reservation is None:
        return {protocol.ENV_GPUS: ""}
    # CUDA's own order is fastest first; the driver and `gpuIndices` use the bus order
    return {protocol.ENV_GPUS: ",".join(map(str, reservation.places)), protocol.ENV_GPU_ORDER: "PCI_BUS_ID"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMachine:
    """A machine of a training service, with what a trial needs of it and the service's jobs there."""

    machine: KeeperMachine
    demand: Demand
    jobs: KeeperJobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The keeper and the places of a job. `reservation` None: the job was started before and has ended."""

    jobs: KeeperJobs
    reservation: Reservation | None
    #: The keeper already has the job; starting it again returns its state.
    is_started: bool = False


class MachinePool:
    """The machines of one training service. `wake`: called when room, or the reason for no room, changes."""

    def __init__(self, host: Host, machines: Iterable[PoolMachine], wake: Callable[[], None]) -> None:
        self._machines = {parked.machine.name: parked for parked in machines}
        self._places = host.connections.shared_object(Places)
        self._placement = Placement(
            self._places,
            f"{host.experiment_id}/{host.service}",
            demands={name: parked.demand for name, parked in self._machines.items()},
            code=WaitCode.GPU,
            wake=wake,
        )
        self._away: Mapping[str, str] = {}

    def reach(self, away: Mapping[str, str]) -> None:
        """Notes the unreachable machines: `away` is machine → sentence."""
        self._away = dict(away)
        self._placement.reach(away)

    def room(self) -> Room:
        free = self._placement.room()
        return Room(free=free, why=None if free else self._placement.why())

    def want(self, jobs: int) -> None:
        self._placement.want(jobs)

    async def plan(self, jobs: int) -> JobPlan:
        """The places that a number of jobs would get now. Requires entered `KeeperJobs`."""
        await self._look()
        return self._placement.plan(jobs)

    async def preflight(self) -> Sequence[PreflightFinding]:
        """Findings about the machines' GPUs. Requires entered `KeeperJobs`."""
        await self._look()
        found: list[PreflightFinding] = []
        for parked in self._reached:
            ledger = self._places.find(parked.machine.name)
            if ledger is not None:
                found += gpu_findings(ledger, parked.demand)
        return found

    async def reserve(self, spec: JobSpec) -> Found | NoRoom:
        """A machine and its places for a job about to be submitted, with the job's number of places.

        No place is granted before each keeper's list was read: jobs of an earlier daemon may have places. Raises
        PlatformUnavailable if no machine is reachable, or if an unreachable one may have the job already.
        """
        if spec.is_repeat and (found := await self._started_before(spec.name)) is not None:
            return found
        reached = self._reached
        answers = await asyncio.gather(*(parked.jobs.until_read() for parked in reached), return_exceptions=True)
        _raise_if_none_answers(answers)
        await self._refresh(reached)
        reservation = self._placement.reserve(spec.name, count=spec.gpu_number, is_repeat=spec.is_repeat)
        if reservation is None:
            return NoRoom(why=self._placement.why())
        return Found(jobs=self._machines[reservation.machine].jobs, reservation=reservation)

    async def _started_before(self, name: str) -> Found | None:
        """The place of a job that a keeper started before; None: there is none. Raises PlatformUnavailable."""
        unknown: list[PlatformUnavailable] = []
        for parked in self._machines.values():
            try:
                await parked.jobs.until_read()
                job = (await parked.jobs.listed()).get(name)
            except PlatformUnavailable as error:
                ledger = self._places.find(parked.machine.name)
                # may this keeper have the job, from this daemon or an earlier one?
                if ledger is None or not ledger.was_read or ledger.has(name):
                    unknown.append(PlatformUnavailable(str(error)))
                continue
            if job is not None:
                is_running = job["state"] == protocol.RUNNING
                reservation = Reservation.parse(job["reservation"]) if is_running else None
                return Found(jobs=parked.jobs, reservation=reservation, is_started=True)
        if unknown:
            raise unknown[0]
        return None

    @contextmanager
    def held(self, found: Found, name: str) -> Iterator[None]:
        """A context that releases the places after an error that proves that the job did not start."""
        with self._placement.held(None if found.is_started else found.reservation, name):
            yield

    # Helpers

    async def _look(self) -> None:
        """Reads jobs and GPUs of all reachable machines."""
        reached = self._reached
        await asyncio.gather(*(parked.jobs.until_read() for parked in reached), return_exceptions=True)
        await self._refresh(reached)

    async def _refresh(self, machines: Iterable[PoolMachine]) -> None:
        """Reads the machines' GPUs again, as others use them, too.

        A machine that does not answer gets no job, or one based on its last reading.
        """

        async def refresh(parked: PoolMachine) -> None:
            with suppress(PlatformError):
                await parked.jobs.read_gpus()

        await asyncio.gather(*(refresh(parked) for parked in machines if parked.demand.count))

    @property
    def _reached(self) -> list[PoolMachine]:
        return [parked for name, parked in self._machines.items() if name not in self._away]


def _raise_if_none_answers(answers: Sequence[BaseException | None]) -> None:
    errors = [answer for answer in answers if answer is not None]
    if strange := [error for error in errors if not isinstance(error, PlatformUnavailable)]:
        raise strange[0]
    if len(errors) == len(answers):
        raise PlatformUnavailable("; ".join(map(str, errors)) or "no machine is reachable", refused=True)


_LEAVE_OUT = "remove trialGpuNumber"


def gpu_findings(machine: MachineLedger, demand: Demand) -> Iterator[PreflightFinding]:
    """Findings about GPUs that trials need on a machine but will never get."""
    if demand.count == 0:
        return
    reading = machine.reading
    if reading is None or reading.error:
        sentence = "they were not read" if reading is None else f"they cannot be read: {reading.error}"
        is_absent = reading is not None and reading.is_absent
        yield _finding(
            machine,
            Severity.WRONG if is_absent else Severity.AWAY,
            sentence,
            f"install NVIDIA's driver, or {_LEAVE_OUT}" if is_absent else "check the output of `nvidia-smi` there",
        )
    elif missing := sorted(set(demand.only or ()) - machine.cards.keys()):
        count = len(machine.cards)
        there = "the machine has none" if not count else f"the machine has {', '.join(map(str, machine.cards))}"
        yield _finding(
            machine, Severity.WRONG, f"gpuIndices contains GPU {missing[0]}, but {there}", "list only existing GPUs"
        )
    elif never := placement.never_fits(machine, demand):
        yield _finding(machine, Severity.WRONG, never, f"lower the trial's requirements, or {_LEAVE_OUT}")
    else:
        free = len(machine.fitting(demand))
        sentence = f"{len(machine.cards)} read by {reading.source}, {free} free for these trials now"
        yield _finding(machine, Severity.FINE, sentence, "")


def _finding(machine: MachineLedger, severity: Severity, sentence: str, fix: str) -> PreflightFinding:
    return PreflightFinding(severity=severity, subject=f"GPUs of {machine.called}", sentence=sentence, fix=fix)
