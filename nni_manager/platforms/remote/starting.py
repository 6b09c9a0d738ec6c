"""The start of a job: the choice of machine and GPUs, and the exclusion of machines that fail to start it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from nni_manager.domain.errors import PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.machines.gpu_machines import MachinePool
from nni_manager.machines.ledger import Reservation
from nni_manager.machines.ssh.machine import Machine
from nni_manager.platform_kit.contract import NoRoom, Room
from nni_manager.platforms.remote import job
from nni_manager.platforms.remote.checkpoints import CheckpointMoves
from nni_manager.platforms.remote.experiment_machine import ExperimentMachine
from nni_manager.platforms.remote.experiment_machines import ExperimentMachines
from nni_manager.platforms.remote.machine_jobs import JobLocations
from nni_manager.shared_storage.shared_folder import SharedFolder


class Starting:
    """The starting of one service's jobs. `pool`: None where trials have no GPUs of their own."""

    def __init__(
        self,
        machines: ExperimentMachines,
        locations: JobLocations,
        pool: MachinePool | None,
        shared: SharedFolder | None,
        room: Callable[[], Room],
    ) -> None:
        self._machines = machines
        self._locations = locations
        self._moves = CheckpointMoves(machines, locations)
        self._pool = pool
        self._shared = shared
        self._room = room

    async def start(self, spec: JobSpec) -> JobHandle | NoRoom:
        """Starts a job. Raises PlatformUnavailable, SubmitRejected."""
        key = self._locations.machine(spec.name)
        known = self._machines.get(key) if key is not None else None
        if spec.is_repeat and key is not None and (known is None or not known.is_up):
            return job.handle_of(spec.name, key, "")  # it may run there; `observe` finds out
        if not spec.is_repeat and known is not None and not known.takes_jobs:
            known = None
        if not any(one.is_up for one in self._machines):
            raise PlatformUnavailable(self._machines.why().sentence, refused=True)
        if (pool := self._pool) is not None and spec.gpu_number:
            return await self._pass_over(spec, lambda: self._start_with_gpus(spec, pool))
        return await self._pass_over(spec, lambda: self._start_at_best(spec, known))

    async def _pass_over(self, spec: JobSpec, start: Callable[[], Awaitable[JobHandle | NoRoom]]) -> JobHandle | NoRoom:
        """Starts a job on the next machine where one fails to start it, for example with a full disk."""
        for _ in range(len(self._machines)):
            try:
                return await start()
            except PlatformUnavailable as error:
                if spec.is_repeat or not error.refused:
                    raise
        return NoRoom(why=self._room().why or self._machines.why())

    async def _start_at_best(self, spec: JobSpec, known: ExperimentMachine | None) -> JobHandle | NoRoom:
        site = known or self._machines.choose()
        return NoRoom(why=self._machines.why()) if site is None else await self._start_at(site, spec, None)

    async def _start_with_gpus(self, spec: JobSpec, pool: MachinePool) -> JobHandle | NoRoom:
        found = await pool.reserve(spec)
        if isinstance(found, NoRoom):
            return found
        site = next(one for one in self._machines if one.jobs is found.jobs)
        with pool.held(found, spec.name):
            return await self._start_at(site, spec, found.reservation)

    async def _start_at(
        self, site: ExperimentMachine, spec: JobSpec, reservation: Reservation | None
    ) -> JobHandle | NoRoom:
        if site.code_error:
            raise SubmitRejected(site.code_error)
        machine, folder = site.machine, site.folder
        if machine.greeting is None or not site.archive:
            raise PlatformUnavailable(site.why, refused=not spec.is_repeat)
        if self._shared is None:
            spec = await self._moves.bring(spec, site)
            request = job.request(
                spec,
                site.entry,
                machine.greeting,
                reservation,
                folder=folder,
                archive=site.archive,
                sha256=site.code_sha256,
            )
        else:
            await self._shared.place(spec)
            request = job.request_on_storage(
                spec,
                site.entry,
                machine.greeting,
                reservation,
                folder=folder,
                shared=self._shared,
                there=site.shared_folder,
            )
        key = site.entry.address.key
        with _counted(machine, spec.name), _judged(site):
            await asyncio.to_thread(self._locations.put, spec.name, key)
            report = await site.jobs.submit(spec.name, request, reservation)
        if report.state is not JobState.PENDING and not report.is_untaken:
            site.note_start()
        return job.handle_of(spec.name, key, job.attempt_folder(folder, spec.name))


@contextmanager
def _counted(machine: Machine, name: str) -> Iterator[None]:
    """A context that counts a job among those that run on a machine, unless it was certainly not started."""
    machine.running.add(name)
    try:
        yield
    except (SubmitRejected, PlatformUnavailable) as error:
        if isinstance(error, SubmitRejected) or error.refused:
            machine.running.discard(name)
        raise


@contextmanager
def _judged(site: ExperimentMachine) -> Iterator[None]:
    """A context that excludes a machine for a while when it fails to start a job."""
    try:
        yield
    except PlatformUnavailable as error:
        if error.refused:
            site.set_aside(str(error))
        raise
