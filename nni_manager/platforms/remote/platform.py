"""The adapter of `remote`: trials run on machines reached by SSH. A keeper on each outlives daemon and connection."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import ClassVar, Self

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import NotFound, PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.machines.gpu_machines import MachinePool, PoolMachine, demand_of
from nni_manager.machines.ledger import Demand
from nni_manager.machines.ssh.address import Entry
from nni_manager.platform_kit.contract import Capabilities, Host, JobPlan, NoRoom, PreflightFinding, Room
from nni_manager.platform_kit.machine_report import MachineReport
from nni_manager.platforms.remote import checkpoints, cleaning
from nni_manager.platforms.remote.config import RemoteConfig
from nni_manager.platforms.remote.experiment_machine import ExperimentMachine
from nni_manager.platforms.remote.experiment_machines import ExperimentMachines, entries_of
from nni_manager.platforms.remote.machine_jobs import JobLocations, attempt_folder
from nni_manager.platforms.remote.starting import Starting, place_of
from nni_manager.shared_storage.shared_folder import KINDS, OnSharedStorage
from trial_runner import protocol


class RemotePlatform(OnSharedStorage[RemoteConfig]):
    """The adapter of `remote`: keepers report every change; `observe` answers from memory."""

    changeable = frozenset({"machineList", "machineGracePeriod"})
    mounts: ClassVar[frozenset[str]] = KINDS

    def __init__(self, config: RemoteConfig, host: Host) -> None:
        super().__init__(config, host)
        self._locations = JobLocations(host.folder / host.service)
        if self._shared is not None:
            self.capabilities = replace(self.capabilities, removes_checkpoints=False)
        self._gpu_number, self._gpu_memory_mib = config.trial_gpu_number, config.trial_gpu_memory
        make = partial(
            ExperimentMachine,
            host=host,
            locations=self._locations,
            changed=self._on_change,
            has_gpus=bool(self._gpu_number),
            shared=self._shared,
            python_version=config.trial_python_version or "",
        )
        self._machines = ExperimentMachines(host, self._locations, make)
        #: None: trials reserve no GPUs.
        self._pool: MachinePool | None = None

    @classmethod
    def capabilities_for(cls, config: RemoteConfig) -> Capabilities:
        return Capabilities(
            watches=True,
            reads_files=True,
            ships_code=True,
            leaves_files=True,
            removes_checkpoints=True,
            unreachable_grace_s=config.machine_grace_period,
        )

    @classmethod
    def connection_key(cls, config: RemoteConfig) -> str:
        return " ".join(sorted(entry.address.key for entry in entries_of(config)))

    async def preflight(self) -> Sequence[PreflightFinding]:
        from nni_manager.platforms.remote.preflight import look

        demands = {entry: self._demand(entry) for entry in entries_of(self.config)}
        return await look(demands, self.host.connections, self._shared, self.config.trial_python_version or "")

    # Life cycle

    async def __aenter__(self) -> Self:
        with _written_down():
            await self._machines.load(self.config)
        if self._gpu_number:
            parked = [
                PoolMachine(machine=site.keeper_machine, demand=self._demand(site.entry), jobs=site.jobs)
                for site in self._machines
            ]
            self._pool = MachinePool(self.host, parked, lambda: self.host.wake(""))
        try:
            await self._machines.start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _stop(self) -> None:
        if self._pool is not None:
            self._pool.want(0)
        await self._machines.stop()

    def renew(self, config: RemoteConfig) -> None:
        super().renew(config)
        self._machines.renew(config)

    def try_again(self) -> None:
        for site in self._machines:
            site.try_again()

    def _demand(self, entry: Entry) -> Demand:
        return demand_of(
            self._gpu_number,
            gpu_indices=entry.gpu_indices,
            use_active_gpu=entry.use_active_gpu,
            max_trial_number_per_gpu=entry.max_trial_number_per_gpu,
            gpu_memory_mib=self._gpu_memory_mib,
        )

    def _on_change(self) -> None:
        """Notes that a machine became usable or unusable."""
        if self._pool is not None:
            self._pool.reach({site.keeper_machine.name: site.why for site in self._machines if not site.takes_jobs})
        self.host.wake("")

    # Room

    def machines(self) -> Sequence[MachineReport]:
        return [site.report for site in self._machines]

    def want(self, jobs: int) -> None:
        if self._pool is not None:
            self._pool.want(jobs)

    async def plan(self, jobs: int) -> JobPlan | None:
        return self._machines.plan(jobs) if self._pool is None else await self._pool.plan(jobs)

    def room(self) -> Room:
        if self._pool is None:
            return self._machines.room()
        room = self._pool.room()
        return room if room.free == 0 else replace(room, why=self._machines.why_not_all())

    # Verbs

    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        return await Starting(self._machines, self._locations, self._pool, self._shared, self.room).start(spec)

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        reports: dict[JobHandle, Observation] = {}
        for key, group in self._by_machine(handles).items():
            reports.update(await self._observe(key, group))
        return reports

    async def _observe(self, key: str, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        site = self._machines.get(key)
        if site is None:
            report = Observation(state=JobState.LOST, message=f"{_host(key)} is not in machineList any more")
            return dict.fromkeys(handles, report)
        try:
            told = await site.jobs.reports([handle.job_name for handle in handles])
        except PlatformUnavailable:
            return {handle: site.unasked(handle.job_name) for handle in handles}
        return {handle: _judged(handle, told[handle.job_name], site) for handle in handles}

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        """Asks jobs to end. Jobs on unreachable machines are asked when these are back."""
        await self._each(handles, lambda site, names: site.cancel(names, grace_period_s))

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        await self._collect(handles)
        await self._locations.give_up([handle.job_name for handle in handles])
        away = await self._each(handles, self._forget_at)
        if away:
            raise PlatformUnavailable("; ".join(away))

    async def _forget_at(self, site: ExperimentMachine, names: Sequence[str]) -> None:
        await site.jobs.forget(names)
        await self._locations.note_gone(names)

    async def _each(
        self, handles: Sequence[JobHandle], ask: Callable[[ExperimentMachine, Sequence[str]], Awaitable[None]]
    ) -> list[str]:
        """Asks the machines of the jobs; returns the reasons of failures."""
        away = []
        for key, group in self._by_machine(handles).items():
            if (site := self._machines.get(key)) is not None:
                try:
                    await ask(site, [handle.job_name for handle in group])
                except PlatformUnavailable as error:
                    away.append(site.why or str(error))
        return away

    async def remove_checkpoints(self, handles: Sequence[JobHandle]) -> Mapping[JobHandle, str]:
        groups = [(self._machines.get(key), group) for key, group in self._by_machine(handles).items()]
        asked = (checkpoints.remove_checkpoints(site, group) for site, group in groups if site is not None)
        return {handle: why for answer in await asyncio.gather(*asked) for handle, why in answer.items()}

    async def _read(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        site, directory = self._place_of(handle, name)
        try:
            told = await site.jobs.request("read", attempt_directory=directory, file=name, offset=offset, limit=limit)
        except SubmitRejected:
            raise NotFound(f"{handle.job_name} has no readable file {name!r}") from None
        return base64.b64decode(told["data"])

    async def list_files(self, handle: JobHandle) -> Sequence[str]:
        site, directory = self._place_of(handle, "its folder")
        return list((await site.jobs.request("files", attempt_directory=directory))["files"])

    def _place_of(self, handle: JobHandle, name: str) -> tuple[ExperimentMachine, str]:
        """The machine of a job and its folder there. `name`: the file to read. Raises NotFound."""
        key, folder = place_of(handle)
        site = self._machines.get(key)
        if site is None or not site.is_up:
            why = site.why if site is not None else f"{_host(key)} is not in machineList any more"
            raise NotFound(f"{name} cannot be read now: {why}")
        return site, folder or attempt_folder(site.folder, handle.job_name)

    async def close(self) -> None:
        """Removes the code and our mounts; files of trials stay until the experiment is deleted."""
        await self._machines.try_to_keep(self.config)
        up = [site for site in self._machines if site.is_up]
        if self._shared is None:
            for site in up:
                if site.archive:
                    await site.machine.remove(site.archive)
                    await site.machine.remove(site.archive + protocol.CODE_TREE)
            return
        await asyncio.gather(*(site.leave_storage(self._shared) for site in up))
        await super().close()

    async def clean(self, job_names: Sequence[str]) -> None:
        if not self._machines:
            with _written_down():
                known = await self._machines.look_up(self.config)
            await cleaning.clean(known, self.host, is_deleted=not job_names)
            if self.host.folder.is_dir():  # the experiment may be deleted
                await self._locations.note_gone(job_names)
            return
        await self._locations.give_up(job_names)  # wherever they are
        for site in self._machines:
            if site.is_up:
                await site.jobs.forget(job_names)

    def _by_machine(self, handles: Iterable[JobHandle]) -> dict[str, list[JobHandle]]:
        groups: dict[str, list[JobHandle]] = {}
        for handle in handles:
            key, _ = place_of(handle)
            self._locations.know(handle.job_name, key)
            groups.setdefault(key, []).append(handle)
        return groups


@contextmanager
def _written_down() -> Iterator[None]:
    """A context for reading and writing the file of machines. OSError becomes PlatformUnavailable and is retried."""
    try:
        yield
    except OSError as error:
        raise PlatformUnavailable(f"the list of machines cannot be read or written: {error}") from error


def _judged(handle: JobHandle, report: Observation, site: ExperimentMachine) -> Observation:
    """The keeper's report on a job. If the keeper never knew the job, it never ran: the keeper records accepted jobs
    before starting them."""
    is_unheard_of = report is site.jobs.unheard_of and handle.job_name not in site.jobs.seen
    return replace(report, was_never_taken=True) if is_unheard_of else report


def _host(key: str) -> str:
    return key.removeprefix("ssh:").partition("/")[0].partition("@")[2].rpartition(":")[0]
