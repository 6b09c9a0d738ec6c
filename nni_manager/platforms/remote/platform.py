"""Runs trials on machines reached by SSH, each through a keeper there that outlives daemon and connection."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import ClassVar, Self
from weakref import WeakKeyDictionary

from nni_manager.domain.errors import (
    BadCredentials,
    NotFound,
    PlatformUnavailable,
    SubmitRejected,
)
from nni_manager.domain.experiment import Json
from nni_manager.domain.job import JobHandle, JobReport, JobSpec, JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Capabilities, Host, JobPlan, NoRoom, Platform, PreflightFinding, Room
from nni_manager.platform_kit.gpu_machines import MachinePark, ParkedMachine, demand_of
from nni_manager.platform_kit.machines.ledger import Demand, Reservation
from nni_manager.platform_kit.shared_folder import KINDS, SharedFolder
from nni_manager.platforms.remote import cleaning, former, job
from nni_manager.platforms.remote.config import RemoteConfig
from nni_manager.platforms.remote.entry import Entry
from nni_manager.platforms.remote.machine import Machine
from nni_manager.platforms.remote.placed import Placed
from nni_manager.platforms.remote.site import Site
from trial_runner import protocol

log = logging.getLogger(__name__)

#: Daemon → experiment and service → machines that it had when it was entered last, with their secrets.
_FORMER: WeakKeyDictionary[Connections, dict[str, dict[str, former.Section]]] = WeakKeyDictionary()
#: Seconds that entering waits for machines: those that answer later are used from then on.
_ENTER_S = 25.0


class RemotePlatform(Platform):
    """Keepers tell of every change; `observe` answers from what they told."""

    changeable = frozenset({"machineList", "machineGracePeriod"})
    mounts: ClassVar[frozenset[str]] = KINDS

    def __init__(self, settings: Json, host: Host) -> None:
        super().__init__(settings, host)
        self._placed = Placed(host.folder / host.service)
        self._shared = SharedFolder.of(host)
        self._sites: dict[str, Site] = {}
        #: Seconds for which machines are waited for when one can be used: trials go to all of them.
        self.together_s = 2.0
        config = RemoteConfig.model_validate(settings)
        self._gpu_number, self._gpu_memory_mib = config.trial_gpu_number, config.trial_gpu_memory
        #: None where trials have no GPUs of their own.
        self._park: MachinePark | None = None

    @classmethod
    def capabilities_for(cls, settings: Json) -> Capabilities:
        grace_s = settings["machineGracePeriod"]
        assert isinstance(grace_s, int | float), "the section was judged"
        return Capabilities(
            watches=True, reads_files=True, ships_code=True, leaves_files=True, unreachable_grace_s=grace_s
        )

    @classmethod
    def connection_key(cls, settings: Json) -> str:
        return " ".join(sorted(entry.address.key for entry in _entries(settings)))

    async def preflight(self) -> Sequence[PreflightFinding]:
        from nni_manager.platforms.remote.preflight import look

        demands = {entry: self._demand(entry) for entry in _entries(self.settings)}
        return await look(demands, self.host.connections.identity, self._shared)

    # Its life

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._placed.load)
        self._sites = {key: self._site(entry) for key, entry in (await asyncio.to_thread(self._known)).items()}
        self._park = MachinePark(self.host, self._parked(), lambda: self.host.wake("")) if self._gpu_number else None
        for site in self._sites.values():
            site.start()
        try:
            await self._until_first()
            if all(site.refusal is not None for site in self._sites.values()):
                raise BadCredentials("; ".join(str(site.refusal) for site in self._sites.values()))
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        if self._park is not None:
            self._park.want(0)
        sites, self._sites = self._sites, {}
        await asyncio.gather(*(site.stop() for site in sites.values()))

    async def _until_first(self) -> None:
        """One can be used, and the others have had a moment, too; or of all it is known that they cannot; or it takes
        too long."""
        waiting = {asyncio.create_task(site.first.wait()) for site in self._sites.values()}
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        try:
            while waiting:
                is_any_up = any(site.is_up for site in self._sites.values())
                left_s = begun_s + (self.together_s if is_any_up else _ENTER_S) - loop.time()
                done, waiting = await asyncio.wait(
                    waiting, timeout=max(0.0, left_s), return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    return
        finally:
            for task in waiting:
                task.cancel()

    def _known(self) -> dict[str, Entry]:
        """Those of the list, and others that were in it and have jobs, which they keep until these end."""
        folder = self.host.folder / self.host.service
        mine = _FORMER.setdefault(self.host.connections, {}).setdefault(self._owner, {})
        listed = former.by_key(_sections(self.settings))
        left = {**former.load(folder), **mine}
        kept = {
            key: {**left[key], "drain": True} for key in left.keys() - listed.keys() if self._placed.has_jobs_on(key)
        }
        mine.clear()
        mine.update(kept | listed)
        if self.host.folder.is_dir():  # a plan is made for no experiment
            former.save(folder, mine.values())
        return {key: Entry.of(section) for key, section in mine.items()}

    @property
    def _owner(self) -> str:
        return f"{self.host.experiment_id}/{self.host.service}"

    def _site(self, entry: Entry) -> Site:
        return Site(
            entry, self.host, self._placed, self._on_change, has_gpus=bool(self._gpu_number), shared=self._shared
        )

    def _parked(self) -> list[ParkedMachine]:
        return [
            ParkedMachine(machine=site.keeper_machine, demand=self._demand(site.entry), jobs=site.jobs)
            for site in self._sites.values()
        ]

    def _demand(self, entry: Entry) -> Demand:
        return demand_of(
            self._gpu_number, gpu_indices=entry.gpu_indices, use_active_gpu=entry.use_active_gpu,
            max_trial_number_per_gpu=entry.max_trial_number_per_gpu, gpu_memory_mib=self._gpu_memory_mib,
        )  # fmt: skip

    def _on_change(self) -> None:
        """Of a machine."""
        if self._park is not None:
            sites = self._sites.values()
            self._park.reach({site.keeper_machine.name: site.why for site in sites if not site.takes_jobs})
        self.host.wake("")

    # Room

    def want(self, jobs: int) -> None:
        if self._park is not None:
            self._park.want(jobs)

    async def plan(self, jobs: int) -> JobPlan | None:
        if self._park is not None:
            return await self._park.plan(jobs)
        able = [site for site in self._sites.values() if site.takes_jobs]
        free = {site.entry.address.host: site.free_processors for site in able}
        places = []
        for _ in range(jobs if free else 0):
            host = max(free, key=lambda one: free[one])
            free[host] -= 1
            places.append(host)
        why_not = {site.entry.address.host: site.why for site in self._sites.values() if not site.takes_jobs}
        return JobPlan(places=places, why_not=why_not)

    def room(self) -> Room:
        if self._park is not None:
            room = self._park.room()
            return room if room.free == 0 else replace(room, why=self._why_not_all())
        if any(site.takes_jobs for site in self._sites.values()):
            return Room(why=self._why_not_all())
        return Room(free=0, why=self._why())

    def _why_not_all(self) -> Wait | None:
        """Of machines that cannot be used while others can."""
        out = [site for site in self._sites.values() if site.is_out_of_use]
        return self._why(out) if out else None

    def _why(self, sites: Collection[Site] = ()) -> Wait:
        """Of these, or of all of them."""
        sites = sites or self._sites.values()
        answers = any(site.is_up or site.is_left_alone for site in sites)
        code = WaitCode.PLATFORM_UNAVAILABLE if answers else WaitCode.MACHINE_DOWN
        details = {"machines": {site.entry.address.host: site.why for site in sites}}
        return Wait(code=code, sentence="; ".join(site.why for site in sites), details=details)

    def _choose(self) -> Site | None:
        """The one with most processors that no job of ours has; of equal ones the first."""
        able = [site for site in self._sites.values() if site.takes_jobs]
        return max(able, key=lambda site: site.free_processors, default=None)

    # Verbs

    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        known = self._placed.machine(spec.name) if spec.is_repeat else None
        site = self._sites.get(known) if known is not None else None
        if known is not None and (site is None or not site.is_up):
            return job.handle_of(spec.name, known, "")  # it may run there; what `observe` says of it decides
        if not any(one.is_up for one in self._sites.values()):
            raise PlatformUnavailable(self._why().sentence, refused=True)
        if (park := self._park) is not None:
            return await self._pass_over(spec, lambda: self._start_with_gpus(spec, park))
        return await self._pass_over(spec, lambda: self._start_at_best(spec, known))

    async def _pass_over(self, spec: JobSpec, start: Callable[[], Awaitable[JobHandle | NoRoom]]) -> JobHandle | NoRoom:
        """Machines that start nothing now, such as one whose disk is full: as long as there is another."""
        for _ in self._sites:
            try:
                return await start()
            except PlatformUnavailable as error:
                if spec.is_repeat or not error.refused:
                    raise
        return NoRoom(why=self.room().why or self._why())

    async def _start_at_best(self, spec: JobSpec, known: str | None) -> JobHandle | NoRoom:
        site = self._choose() if known is None else self._sites[known]
        return NoRoom(why=self._why()) if site is None else await self._start(spec, site, None)

    async def _start_with_gpus(self, spec: JobSpec, park: MachinePark) -> JobHandle | NoRoom:
        found = await park.reserve(spec.name, is_repeat=spec.is_repeat)
        if isinstance(found, NoRoom):
            return found
        site = next(one for one in self._sites.values() if one.jobs is found.jobs)
        with park.held(found, spec.name):
            return await self._start(spec, site, found.reservation)

    async def _start(self, spec: JobSpec, site: Site, reservation: Reservation | None) -> JobHandle | NoRoom:
        if site.code_error:
            raise SubmitRejected(site.code_error)
        machine, folder = site.machine, site.folder
        if machine.greeting is None or not site.archive:
            raise PlatformUnavailable(site.why, refused=not spec.is_repeat)
        if self._shared is None:
            request = job.request(spec, site.entry, machine.greeting, reservation, folder=folder, archive=site.archive)
        else:
            await self._shared.place(spec)
            request = job.request_on_storage(
                spec, site.entry, machine.greeting, reservation, folder=folder, shared=self._shared,
                there=site.shared_folder,
            )  # fmt: skip
        key = site.entry.address.key
        with _counted(machine, spec.name), _judged(site):
            await asyncio.to_thread(self._placed.put, spec.name, key)
            await site.jobs.submit(spec.name, request, reservation)
        return job.handle_of(spec.name, key, job.attempt_folder(folder, spec.name))

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, JobReport]:
        reports: dict[JobHandle, JobReport] = {}
        for key, group in self._by_machine(handles).items():
            reports.update(await self._observe(key, group))
        return reports

    async def _observe(self, key: str, handles: Sequence[JobHandle]) -> dict[JobHandle, JobReport]:
        site = self._sites.get(key)
        if site is None:
            report = JobReport(state=JobState.LOST, message=f"{_host(key)} is not in machineList any more")
            return dict.fromkeys(handles, report)
        try:
            told = await site.jobs.reports([handle.job_name for handle in handles])
        except PlatformUnavailable:
            return {handle: site.unasked(handle.job_name) for handle in handles}
        return {handle: told[handle.job_name] for handle in handles}

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        """On machines that are away they are told when they are back."""
        await self._each(handles, lambda site, names: site.cancel(names, grace_period_s))

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        if (shared := self._shared) is not None:
            reading = [(handle.job_name, partial(self._read, handle)) for handle in handles]
            await asyncio.gather(*(shared.collect(name, read) for name, read in reading))
        for handle in handles:
            self._placed.give_up(handle.job_name)
        away = await self._each(handles, lambda site, names: site.jobs.forget(names))
        if away:
            raise PlatformUnavailable("; ".join(away))

    async def _each(
        self, handles: Sequence[JobHandle], ask: Callable[[Site, Sequence[str]], Awaitable[None]]
    ) -> list[str]:
        """Asks the machines that jobs are on; answers why some could not be asked."""
        away = []
        for key, group in self._by_machine(handles).items():
            if (site := self._sites.get(key)) is not None:
                try:
                    await ask(site, [handle.job_name for handle in group])
                except PlatformUnavailable as error:
                    away.append(site.why or str(error))
        return away

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        if self._shared is not None and name == protocol.TRIAL_LOG_FILE:
            return await self._shared.read_log(handle.job_name, offset, limit)
        return await self._read(handle, name, offset, limit)

    async def _read(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        key, folder = job.place_of(handle)
        site = self._sites.get(key)
        if site is None or not site.is_up:
            why = site.why if site is not None else f"{_host(key)} is not in machineList any more"
            raise NotFound(f"{name} cannot be read now: {why}")
        directory = folder or job.attempt_folder(site.folder, handle.job_name)
        try:
            told = await site.jobs.request("read", attempt_directory=directory, file=name, offset=offset, limit=limit)
        except SubmitRejected:
            raise NotFound(f"there is no file {name!r} that can be read of {handle.job_name}") from None
        return base64.b64decode(told["data"])

    async def close(self) -> None:
        """The code goes, and so do mounts of ours; what trials wrote stays until the experiment is deleted."""
        up = [site for site in self._sites.values() if site.is_up]
        if self._shared is None:
            for site in up:
                if site.archive:
                    await site.machine.remove(site.archive)
            return
        await asyncio.gather(*(site.leave_storage(self._shared) for site in up))
        await self._shared.leave()

    async def clean(self, job_names: Sequence[str]) -> None:
        if not self._sites:
            return await cleaning.clean(_entries(self.settings), self.host)
        for name in job_names:
            await asyncio.to_thread(self._placed.give_up, name)  # wherever it is found later
        for site in self._sites.values():
            if site.is_up:
                await site.jobs.forget(job_names)

    def _by_machine(self, handles: Iterable[JobHandle]) -> dict[str, list[JobHandle]]:
        groups: dict[str, list[JobHandle]] = {}
        for handle in handles:
            key, _ = job.place_of(handle)
            self._placed.know(handle.job_name, key)
            groups.setdefault(key, []).append(handle)
        return groups


def _entries(settings: Json) -> list[Entry]:
    return [Entry.of(section) for section in _sections(settings)]


def _sections(settings: Json) -> list[former.Section]:
    machines = settings["machineList"]
    assert isinstance(machines, list), "the section was judged"
    return machines


def _host(key: str) -> str:
    """As people know it."""
    return key.removeprefix("ssh:").partition("/")[0].partition("@")[2].rpartition(":")[0]


@contextmanager
def _counted(machine: Machine, name: str) -> Iterator[None]:
    """Among those that run there, unless it was certainly not started."""
    machine.running.add(name)
    try:
        yield
    except (SubmitRejected, PlatformUnavailable) as error:
        if isinstance(error, SubmitRejected) or error.refused:
            machine.running.discard(name)
        raise


@contextmanager
def _judged(site: Site) -> Iterator[None]:
    """By whether it starts a job."""
    try:
        yield
    except PlatformUnavailable as error:
        if error.refused:
            site.set_aside(str(error))
        raise
    site.note_start()
