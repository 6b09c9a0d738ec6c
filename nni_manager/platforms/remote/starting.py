"""Starts jobs: chooses machine and GPUs, excludes machines that fail to start a job, and sends the request to the
keeper, with folder, command and environment."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nni_manager.domain.errors import PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.machines.gpu_machines import MachinePool, gpu_environment
from nni_manager.machines.keeper.jobs import spawn_request
from nni_manager.machines.ledger import Reservation
from nni_manager.machines.ssh.address import Entry
from nni_manager.machines.ssh.bootstrap import Greeting
from nni_manager.machines.ssh.machine import Machine
from nni_manager.platform_kit.contract import NoRoom, Room
from nni_manager.platform_kit.payload import directory_environment
from nni_manager.platforms.remote.checkpoints import CheckpointMoves
from nni_manager.platforms.remote.experiment_machine import ExperimentMachine
from nni_manager.platforms.remote.experiment_machines import ExperimentMachines
from nni_manager.platforms.remote.machine_jobs import JobLocations, attempt_folder
from nni_manager.platforms.remote.trial_python import OF_THE_SESSION, command_of, folder_of_python
from nni_manager.shared_storage.shared_folder import SharedFolder
from trial_runner import protocol


class Starting:
    """Starts the jobs of one service. `pool`: None: trials reserve no GPUs."""

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
            return handle_of(spec.name, key, "")  # it may run there; `observe` will tell
        if not spec.is_repeat and known is not None and not known.takes_jobs:
            known = None
        if not any(one.is_up for one in self._machines):
            raise PlatformUnavailable(self._machines.why().sentence, refused=True)
        if (pool := self._pool) is not None and spec.gpu_number:
            return await self._pass_over(spec, lambda: self._start_with_gpus(spec, pool))
        return await self._pass_over(spec, lambda: self._start_at_best(spec, known))

    async def _pass_over(self, spec: JobSpec, start: Callable[[], Awaitable[JobHandle | NoRoom]]) -> JobHandle | NoRoom:
        """Starts a job, and tries the next machine if one fails to start it, for example because its disk is full."""
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
            request = request_of(
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
            request = request_on_storage(
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
            await self._locations.put(spec.name, key)
            report = await site.jobs.submit(spec.name, request, reservation)
        if report.state is not JobState.PENDING and not report.is_untaken:
            site.note_start()
        return handle_of(spec.name, key, attempt_folder(folder, spec.name))


@contextmanager
def _counted(machine: Machine, name: str) -> Iterator[None]:
    """A context that counts a job as running on a machine, unless it certainly did not start."""
    machine.running.add(name)
    try:
        yield
    except (SubmitRejected, PlatformUnavailable) as error:
        if isinstance(error, SubmitRejected) or error.refused:
            machine.running.discard(name)
        raise


@contextmanager
def _judged(site: ExperimentMachine) -> Iterator[None]:
    """A context that excludes a machine for a while if it fails to start a job."""
    try:
        yield
    except PlatformUnavailable as error:
        if error.refused:
            site.set_aside(str(error))
        raise


def request_of(
    spec: JobSpec,
    entry: Entry,
    greeting: Greeting,
    reservation: Reservation | None,
    *,
    folder: str,
    archive: str,
    sha256: str,
) -> dict[str, Any]:
    """The request for a job. `folder`: the experiment's on the machine; `archive`: its code, with that SHA-256."""
    code = f"{attempt_folder(folder, spec.name)}/{protocol.CODE_FOLDER}"
    told = _request(spec, entry, greeting, reservation, folder=folder, code=code)
    return {**told, "code": {"archive": archive, "folder": code, "sha256": sha256}}


def request_on_storage(
    spec: JobSpec,
    entry: Entry,
    greeting: Greeting,
    reservation: Reservation | None,
    *,
    folder: str,
    shared: SharedFolder,
    there: str,
) -> dict[str, Any]:
    """The request for a job on shared storage. `there`: the experiment's folder on it."""
    own = shared.environment(spec.name, there)
    told = _request(spec, entry, greeting, reservation, folder=folder, code=own[protocol.ENV_CODE_DIR])
    spec = dataclasses.replace(spec, command=told["command"])
    return {
        **told,
        # the command changes to its folder itself: a hanging storage folder would block the keeper
        "command": shared.command(spec, there, greeting.interpreter),
        "directory": "/",
        "environment": {**told["environment"], **own},
    }


def _request(
    spec: JobSpec, entry: Entry, greeting: Greeting, reservation: Reservation | None, *, folder: str, code: str
) -> dict[str, Any]:
    attempt = attempt_folder(folder, spec.name)
    return spawn_request(
        spec,
        command=command_of(spec.command, entry.pre_command),
        directory=code,
        attempt_directory=attempt,
        environment=_environment(spec, entry, greeting, attempt, code) | gpu_environment(spec, reservation),
    )


def handle_of(job_name: str, machine: str, folder: str) -> JobHandle:
    """The handle of a job. `folder`: the attempt's; empty: unknown, as the machine was unreachable."""
    data = json.dumps({"machine": machine, "folder": folder})
    return JobHandle(platform="remote", version=1, job_name=job_name, data=data)


def place_of(handle: JobHandle) -> tuple[str, str]:
    """The machine's key and the attempt's folder there, from a job's handle."""
    data = json.loads(handle.data)
    return data["machine"], data["folder"]


def _environment(spec: JobSpec, entry: Entry, greeting: Greeting, attempt: str, code: str) -> dict[str, str]:
    """The environment of a trial: that of the machine's user, then the trial protocol's."""
    own = {name: value for name, value in greeting.environment.items() if name not in OF_THE_SESSION}
    if entry.python_path:
        own["PATH"] = f"{folder_of_python(entry.python_path, greeting.home)}:{own.get('PATH', '/usr/bin:/bin')}"
    stand_in = f"{greeting.program}/{protocol.__name__.partition('.')[0]}/stand_in"
    path = own.get("PYTHONPATH")
    return {
        **own,
        "PYTHONPATH": f"{path}:{stand_in}" if path else stand_in,
        **spec.protocol_environment,
        **directory_environment(attempt, code),
        protocol.ENV_PLATFORM: "remote",
        protocol.ENV_COMMAND_CHANNEL: protocol.COMMAND_CHANNEL,
    }
