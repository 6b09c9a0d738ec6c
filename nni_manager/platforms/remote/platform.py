"""Runs trials on machines reached by SSH, each through a keeper there that outlives daemon and connection."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from nni_manager.domain.errors import (
    BadCredentials,
    InvalidInput,
    NotFound,
    PlatformUnavailable,
    SubmitRejected,
)
from nni_manager.domain.experiment import ExperimentSpec, Json, PlatformSpec
from nni_manager.domain.job import JobHandle, JobReport, JobSpec, JobState
from nni_manager.domain.wait import Wait, WaitCode
from nni_manager.platform_kit.contract import Capabilities, Host, NoRoom, Platform, PreflightFinding, Room
from nni_manager.platforms.remote import cleaning, job
from nni_manager.platforms.remote.placed import Placed
from nni_manager.platforms.remote.site import Entry, Site

log = logging.getLogger(__name__)

#: Seconds that entering waits for machines: those that answer later are used from then on.
_ENTER_S = 25.0


class RemotePlatform(Platform):
    """Keepers tell of every change; `observe` answers from what they told."""

    def __init__(self, settings: Json, host: Host) -> None:
        super().__init__(settings, host)
        self._placed = Placed(host.folder / host.service)
        self._sites: dict[str, Site] = {}

    @classmethod
    def capabilities_for(cls, settings: Json) -> Capabilities:
        grace_s = settings["machineGracePeriod"]
        assert isinstance(grace_s, int | float), "the section was judged"
        return Capabilities(watches=True, reads_files=True, ships_code=True, unreachable_grace_s=grace_s)

    @classmethod
    def connection_key(cls, settings: Json) -> str:
        return " ".join(sorted(entry.address.key for entry in _entries(settings)))

    @classmethod
    def check(cls, spec: ExperimentSpec, service: PlatformSpec) -> None:
        if service.settings.get("trialGpuNumber", spec.trial_gpu_number):
            raise InvalidInput(
                "trialGpuNumber: this version gives no GPUs to trials on `remote`; leave it out, or set it to 0"
            )

    async def preflight(self) -> Sequence[PreflightFinding]:
        from nni_manager.platforms.remote.preflight import look

        return await look(_entries(self.settings))

    # Its life

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._placed.load)
        self._sites = {e.address.key: Site(e, self.host, self._placed) for e in _entries(self.settings)}
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
        sites, self._sites = self._sites, {}
        await asyncio.gather(*(site.stop() for site in sites.values()))

    async def _until_first(self) -> None:
        """One can be used, or of all it is known that they cannot, or it takes too long."""
        waiting = {asyncio.create_task(site.first.wait()) for site in self._sites.values()}
        deadline = asyncio.get_running_loop().time() + _ENTER_S
        try:
            while waiting and not any(site.is_up for site in self._sites.values()):
                left_s = deadline - asyncio.get_running_loop().time()
                done, waiting = await asyncio.wait(
                    waiting, timeout=max(0.0, left_s), return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    return
        finally:
            for task in waiting:
                task.cancel()

    # Room

    def room(self) -> Room:
        if any(site.takes_jobs for site in self._sites.values()):
            return Room()
        return Room(free=0, why=self._why())

    def _why(self) -> Wait:
        sites = list(self._sites.values())
        code = WaitCode.PLATFORM_UNAVAILABLE if any(site.is_up for site in sites) else WaitCode.MACHINE_DOWN
        details = {"machines": {site.entry.address.host: site.why for site in sites}}
        return Wait(code=code, sentence="; ".join(site.why for site in sites), details=details)

    def _choose(self) -> Site | None:
        """The one with most processors that no job of ours has; of equal ones the first."""
        able = [site for site in self._sites.values() if site.takes_jobs]
        return max(able, key=lambda site: site.free_processors, default=None)

    # Verbs

    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        known = self._placed.machine(spec.name) if spec.is_repeat else None
        site = self._sites.get(known) if known is not None else self._choose()
        if known is not None and (site is None or not site.is_up):
            return job.handle_of(spec.name, known, "")  # it may run there; what `observe` says of it decides
        if site is None:
            why = self._why()
            if any(one.is_up for one in self._sites.values()):
                return NoRoom(why=why)
            raise PlatformUnavailable(why.sentence, refused=True)
        return await self._start(spec, site)

    async def _start(self, spec: JobSpec, site: Site) -> JobHandle | NoRoom:
        if site.code_error:
            raise SubmitRejected(site.code_error)
        if not site.archive:
            return NoRoom(why=self._why())
        machine, folder = site.machine, site.folder
        assert machine.greeting is not None, "its folder is known"
        request = job.request(spec, site.entry, machine.greeting, folder=folder, archive=site.archive)
        key = site.entry.address.key
        await asyncio.to_thread(self._placed.put, spec.name, key)
        machine.running.add(spec.name)
        try:
            await site.jobs.submit(spec.name, request)
        except SubmitRejected:
            machine.running.discard(spec.name)
            raise
        except PlatformUnavailable as error:
            if error.refused:
                machine.running.discard(spec.name)
            raise
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
        host = site.entry.address.host
        try:
            told = await site.reports([handle.job_name for handle in handles])
        except PlatformUnavailable:
            return dict.fromkeys(handles, JobReport(state=JobState.UNKNOWN, unreachable=site.why or host, place=host))
        return {handle: _at(told[handle.job_name], host) for handle in handles}

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        """On machines that are away they are told when they are back."""
        await self._each(handles, lambda site, names: site.jobs.cancel(names, grace_period_s))

    async def forget(self, handles: Sequence[JobHandle]) -> None:
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
    machines = settings["machineList"]
    assert isinstance(machines, list), "the section was judged"
    return [Entry.of(machine) for machine in machines]


def _host(key: str) -> str:
    """As people know it."""
    return key.removeprefix("ssh:").partition("/")[0].partition("@")[2].rpartition(":")[0]


def _at(report: JobReport, host: str) -> JobReport:
    return replace(report, place=host)
