"""The adapter of `scripted`: the config sets what happens to its jobs, and when.

A job is a file. `observe` computes the cluster's report from it, the clock and the keeper, so jobs progress while the
daemon is not running. With a runner jobs are real: see `launch`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import Clock, now_ms
from nni_manager.domain.errors import InvalidInput, NotFound, PlatformUnavailable, SubmitRejected
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.machines.ledger import Reservation
from nni_manager.platform_kit.confirmed_loss import ConfirmedLoss
from nni_manager.platform_kit.contract import Capabilities, Host, JobPlan, NoRoom, Platform, Room
from nni_manager.platform_kit.tasks import ended
from nni_manager.platforms.scripted import launch, machines
from nni_manager.platforms.scripted.config import Rule, ScriptedConfig
from nni_manager.platforms.scripted.events import Events, SimulatedReports
from nni_manager.platforms.scripted.faults import AccountUse, Faults
from nni_manager.platforms.scripted.jobs import Job, Jobs
from nni_manager.platforms.scripted.launch import Launch, Processes
from nni_manager.platforms.scripted.states import (
    EXTERNAL,
    NONE,
    PROCESS,
    UNHEARD_OF,
    is_overlooked,
    is_platform_end,
    job_report,
    next_change_ms,
    rule_for,
    run_of,
)
from nni_manager.shared_storage import runner_folder
from nni_manager.shared_storage.job_folders import read_stretch
from nni_manager.shared_storage.pull import Pull
from trial_runner import protocol

#: Seconds for a process's files to appear in the shared folder after its end.
_READ_PATIENCE_S = 2.0
_SLOW_POLL_S = 5.0
#: Jobs that are looked at in a row; other work goes on between them.
_SLICE = 100


class ScriptedPlatform(Platform[ScriptedConfig]):
    """The adapter of `scripted`. `clock`: the script's time, in milliseconds since the epoch."""

    #: Its machines and faults. A job keeps its rule and machine.
    changeable = frozenset(
        {
            "machines",
            "gpuIndices",
            "maxTrialNumberPerGpu",
            "trials",
            "enterOutage",
            "outage",
            "wrongCredentials",
            "noRoom",
            "retryAfter",
            "hang",
            "unreachable",
            "acceptedToken",
        }
    )

    def __init__(self, config: ScriptedConfig, host: Host, clock: Clock = now_ms) -> None:
        super().__init__(config, host)
        self._clock = clock
        self._jobs = Jobs(host.folder / host.service)
        self._faults = Faults(config, self._jobs, clock)
        self._account = AccountUse(config.account, host)
        self._entered = AsyncExitStack()
        self._events = Events(host, is_doubled=config.duplicate_events)
        self._simulated_reports = SimulatedReports(host, times=2 if config.duplicate_events else 1)
        self._processes = Processes(host, self._jobs) if config.launch == PROCESS else None
        self._launch = Launch(config, host, self._jobs, self._processes)
        self._placement = machines.placement(config, host, lambda: self._events.wake(""))
        self._pull = Pull(host) if config.launch != NONE and launch.is_read(config) else None
        self._pulling: asyncio.Task[None] | None = None
        self._loss = ConfirmedLoss(lambda: clock() / 1000, apart_s=config.confirm_loss)
        self._fault_timer: asyncio.TimerHandle | None = None

    def renew(self, config: ScriptedConfig) -> None:
        super().renew(config)
        self._faults.config = config

    @classmethod
    def capabilities_for(cls, config: ScriptedConfig) -> Capabilities:
        is_real = config.launch != NONE
        return Capabilities(
            watches=False,
            reads_files=is_real,
            has_runner=is_real and config.channel != protocol.PULL,
            lives_by_runner=config.launch == EXTERNAL and config.channel != protocol.PULL,
            is_read=is_real and launch.is_read(config),
            ships_code=is_real,
            slow_poll_s=_SLOW_POLL_S,
            platform_decides=any(rule.requeue is not None for rule in config.trials),
            has_portal=any(rule.cancelled_by_person for rule in config.trials),
            unreachable_grace_s=config.unreachable_grace,
        )

    @classmethod
    def check(cls, spec: ExperimentSpec, config: ScriptedConfig) -> None:
        command = str(config.trial_command or spec.trial_command)
        if config.launch == EXTERNAL and "\n" in command.strip("\n"):
            raise InvalidInput(
                "trialCommand: has several lines, but launch: external starts containers from files with one line per"
                " variable; put the commands into a script"
            )

    async def __aenter__(self) -> Self:
        async with self._disk():
            await self._jobs.begin(self._clock())
            await self._faults.enter()
            await self._entered.enter_async_context(self._account.held())
        if self._processes is not None:
            await self._processes.enter(machines.of_keeper(self.config))
        if self._pull is not None:
            self._pulling = asyncio.create_task(self._pull.run(), name=f"pull {self.host.experiment_id}")
        self._follow_faults()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._fault_timer is not None:
            self._fault_timer.cancel()
        if self._placement is not None:
            self._placement.want(0)
        if self._processes is not None:
            await self._processes.leave()
        self._events.close()
        await ended(self._pulling)
        await self._entered.aclose()

    # Room

    def room(self) -> Room:
        if (why := self._faults.no_room()) is not None:
            return Room(free=0, why=why)
        if self._placement is None:
            return Room()
        free = self._placement.room()
        return Room(free=free, why=None if free else self._placement.why())

    def want(self, jobs: int) -> None:
        if self._placement is not None:
            self._placement.want(jobs)

    async def plan(self, jobs: int) -> JobPlan | None:
        return None if self._placement is None else self._placement.plan(jobs)

    def _follow_faults(self) -> None:
        """Notes unreachable machines; called again when the script changes them, and thereby the room."""
        if self._placement is not None:
            away = self._faults.unreachable()
            self._placement.reach({machines.ledger_name(name): why for name, why in away.items()})
        if (wait_s := self._faults.next_change_s()) is not None:
            self._fault_timer = asyncio.get_running_loop().call_later(wait_s + 0.001, self._on_fault_change)

    def _on_fault_change(self) -> None:
        self._follow_faults()
        self._events.wake("")

    # Verbs

    async def _ask(self, verb: str) -> None:
        """Waits for the account's rate limit and applies the script's faults; every call begins with it.

        Raises PlatformUnavailable or BadCredentials.
        """
        async with self._disk():
            await self._account.turn(verb)
            await self._faults.check(verb)

    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        await self._ask("submit")
        rule = rule_for(self.config.trials, spec)
        if rule.refuse_submit:
            await asyncio.sleep(rule.delay)
            raise SubmitRejected(rule.refuse_submit)
        if (why := self._faults.no_room()) is not None and not spec.is_repeat:
            return NoRoom(why=why)
        if self._placement is None or self._processes is None:
            await self._take(spec, rule, None)
        else:
            found = await self._processes.reserve(self._placement, spec.name, is_repeat=spec.is_repeat)
            if isinstance(found, NoRoom):
                return found
            with self._placement.held(found, spec.name):
                await self._take(spec, rule, found)
        return JobHandle(platform="scripted", version=1, job_name=spec.name)

    async def _take(self, spec: JobSpec, rule: Rule, reservation: Reservation | None) -> None:
        async with self._disk():
            job = await self._jobs.add(self._launch.job(spec, rule, self._clock()))
            if reservation is not None:
                machine = machines.machine_name(reservation)
                await self._jobs.replace(dataclasses.replace(job, machine=machine, places=reservation.places))
            try:
                await self._launch.start(job, spec, reservation)
            except SubmitRejected:
                await self._jobs.remove(job.name)
                raise

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        await self._ask("observe")
        await asyncio.sleep(self.config.slow_observe)
        if self._pulling is not None and self._pulling.done():
            self._pulling.result()  # raises a bug's exception
        names = [handle.job_name for handle in handles]
        async with self._disk():
            jobs = await self._jobs.find(names)
        processes = await self._processes.find(names) if self._processes is not None else {}
        looks: list[asyncio.Task[Observation]] = []
        try:
            for place, name in enumerate(names, 1):
                looks.append(asyncio.create_task(self._look(jobs.get(name), name, processes.get(name))))
                if place % _SLICE == 0:
                    await asyncio.sleep(0)
            found = await asyncio.gather(*looks, return_exceptions=True)  # none goes on behind an error of another
        finally:
            for look in looks:
                look.cancel()
        reports: dict[JobHandle, Observation] = {}
        for handle, report in zip(handles, found, strict=True):
            if isinstance(report, BaseException):
                raise report
            reports[handle] = report
        return reports

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        await self._ask("cancel")
        for handle in handles:
            await self._cancel(handle, grace_period_s)

    async def _cancel(self, handle: JobHandle, grace_period_s: float) -> None:
        async with self._disk():
            job = (await self._jobs.find([handle.job_name])).get(handle.job_name)
            if job is None:
                return
            if job.cancelled_ms is None:
                unstarted = await asyncio.to_thread(launch.take_back, self._jobs.folder_of(job.name))
                cancelled = dataclasses.replace(job, cancelled_ms=self._clock(), cancelled_unstarted=unstarted)
                await self._jobs.replace(cancelled)
                if self._pull is not None:
                    await asyncio.to_thread(runner_folder.ask_to_stop, Path(job.system_directory))
        if self._processes is not None:
            await self._processes.cancel([job.name], grace_period_s)
        self._events.wake(job.name)

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        await self._ask("forget")
        names = [handle.job_name for handle in handles]
        if self._processes is not None:
            await self._processes.forget(names)
        await self._remove(names)

    async def clean(self, job_names: Sequence[str]) -> None:
        async with self._account.held():
            await self._ask("forget")
        if self._processes is not None:
            await self._processes.clean(job_names)
        await self._remove(job_names)

    async def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._events.forget(name)
            self._simulated_reports.forget(name)
            self._loss.forget(name)
            if self._pull is not None:
                self._pull.forget(name)
            async with self._disk():
                await self._jobs.remove(name)

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        await self._ask("read_file")
        job = (await self._jobs.find([handle.job_name])).get(handle.job_name)
        if job is None:
            raise NotFound(f"cannot find job {handle.job_name}")
        directory = job.system_directory if launch.is_read(self.config) else job.attempt_directory
        return await asyncio.to_thread(read_stretch, Path(directory), name, offset, limit)

    # A job's state

    async def _look(self, job: Job | None, name: str, process: Observation | None) -> Observation:
        if job is None:
            return self._missed(name, UNHEARD_OF)
        if (why := self._faults.unreachable().get(job.machine)) is not None:
            if self._pull is not None:
                self._pull.forget(name)  # its results cannot be read until it is followed again
            return Observation(
                state=JobState.UNKNOWN, unreachable=why, place=machines.in_words(job.machine, job.places)
            )
        now = self._clock() - round(self.config.late_events * 1000)
        if is_overlooked(job, now):
            self._follow(job)
            return self._missed(name, UNHEARD_OF)
        if self.config.launch == NONE:
            await self._simulated_reports.tell(job, now)
        report = job_report(job, self.config.launch, process, now)
        if report.state is JobState.LOST:
            report = self._missed(name, report)
        else:
            self._loss.found(name)
        if self._processes is not None and report.state.is_final and is_platform_end(job.rule):
            await self._processes.cancel([name], 0)
        if (change := next_change_ms(job, self.config.launch, process, now)) is not None:
            self._events.wake_in(name, change - now)
        return self._events.tell(name, self._with_place(job, self._with_what_is_read(job, process, report)))

    def _missed(self, name: str, lost: Observation) -> Observation:
        """The report on a job that the list lacks: `lost`, once that is confirmed."""
        has_exit = self._pull is not None and self._pull.has_ended(name)
        if not self.config.confirm_loss or self._loss.is_lost(name, has_exit=has_exit):
            return lost
        self._events.wake_in(name, round(self.config.confirm_loss * 1000))
        return Observation(state=JobState.UNKNOWN)

    def _with_place(self, job: Job, report: Observation) -> Observation:
        place = machines.in_words(job.machine, job.places) or job.rule.place
        return dataclasses.replace(report, place=place, link=job.rule.link) if place or job.rule.link else report

    def _with_what_is_read(self, job: Job, process: Observation | None, report: Observation) -> Observation:
        """The report on a job; its end is held back until its results are read. A job in a container runs from its
        runner's first report on."""
        if self._pull is None:
            return report
        self._follow(job)
        running = Observation(state=JobState.RUNNING, started_ms=job.starts_ms)
        if report.state.is_final and process is not None and process.state.is_final:
            self._pull.finish(job.name, _READ_PATIENCE_S)
            return report if self._pull.is_over(job.name) else running
        is_seen = report.state is JobState.PENDING and self._pull.has_started(job.name)
        return running if is_seen else report

    def _follow(self, job: Job) -> None:
        if self._pull is not None:
            folder, logs = Path(job.system_directory), Path(job.attempt_directory)
            self._pull.follow(job.name, folder, logs, run=run_of(job, self._clock()))

    @asynccontextmanager
    async def _disk(self) -> AsyncIterator[None]:
        """A context that raises PlatformUnavailable if the cluster's own files are not usable."""
        try:
            yield
        except OSError as error:
            raise PlatformUnavailable(
                f"the scripted cluster cannot use {error.filename or self._jobs.folder}: {error.strerror}", refused=True
            ) from error
