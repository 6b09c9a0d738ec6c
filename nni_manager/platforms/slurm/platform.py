"""The adapter of Slurm: each attempt is one batch job, whose process is the trial runner.

One `squeue` for all experiments of an account returns the states of all jobs; the accounting is asked about jobs that
left the queue. Results come from the runners' folders on storage that the nodes share.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import ClassVar, Self

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import now_ms
from nni_manager.domain.errors import BadCredentials, MissingExtra, PlatformError, PlatformUnavailable
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.machines.shell import NoAnswer
from nni_manager.platform_kit.confirmed_loss import APART_S, ConfirmedLoss
from nni_manager.platform_kit.contract import (
    Capabilities,
    Host,
    LeftObject,
    NoRoom,
    Platform,
    PreflightFinding,
)
from nni_manager.platform_kit.tasks import ended
from nni_manager.platforms.slurm import commands, preflight, states
from nni_manager.platforms.slurm.cluster import Cluster, Followed, Snapshot, age_s
from nni_manager.platforms.slurm.config import SlurmConfig
from nni_manager.platforms.slurm.files import JobFiles
from nni_manager.platforms.slurm.listing import Row
from nni_manager.platforms.slurm.login import cluster_of, credential_of, key_of
from nni_manager.platforms.slurm.script import arguments, experiment_of, is_of, name_of, script
from nni_manager.shared_storage.mounted_storage import variables_of
from nni_manager.web_services.account import WebLease
from nni_manager.web_services.jobs import loop_s
from trial_runner import protocol
from trial_runner.protocol import container_of_run

_ACCEPTED = Wait(code=WaitCode.SUBMITTED, sentence="Slurm has accepted the job")


class SlurmPlatform(Platform[SlurmConfig]):
    """The adapter of `slurm`."""

    instead_of_shared_storage: ClassVar[str] = "set folder to a folder that all nodes share"
    capabilities = Capabilities(watches=False, reads_files=True, is_read=True, ships_code=True, has_portal=True)
    changeable: ClassVar[frozenset[str]] = frozenset(
        "partition account qos timeLimit trialCpuNumber trialMemorySize gpuType nodeNumber constraint exclude prologue"
        " container options maxSubmit pollInterval".split()
    )
    #: Seconds after which an interrupted `sbatch` has certainly ended.
    settle_s: ClassVar[float] = commands.SUBMIT_S + 10.0
    #: Seconds between two rounds that lack a job, after which it is lost.
    loss_apart_s: ClassVar[float] = APART_S

    def __init__(self, config: SlurmConfig, host: Host) -> None:
        super().__init__(config, host)
        self._owner = f"{host.experiment_id}/{host.service}"
        self._lease: WebLease[Cluster] = WebLease(
            host.connections,
            key_of(config),
            self._owner,
            lambda: cluster_of(self.config, host.caller_environment),
            credential_of(config),
        )
        self._files = JobFiles(config, host)
        self._followed = Followed()
        #: Submissions under way, and accepted jobs of this instance, by job name.
        self._submitting: dict[str, asyncio.Task[JobHandle | NoRoom]] = {}
        self._accepted: dict[str, tuple[JobHandle, float]] = {}
        #: Job name → start of a submission without an answer, by the loop's clock.
        self._unanswered: dict[str, float] = {}
        self._counting = asyncio.Lock()
        self._entered_s = float("-inf")
        self._entered_ms = 0
        #: Names on Slurm when this instance was entered.
        self._earlier: Mapping[str, Row] | None = None
        self._ended: dict[str, Observation] = {}
        self._loss = ConfirmedLoss(loop_s, apart_s=self.loss_apart_s)
        self._ending: set[asyncio.Task[None]] = set()

    @classmethod
    def capabilities_for(cls, config: SlurmConfig) -> Capabilities:
        has_runner = config.nni_manager_ip is not None
        return replace(cls.capabilities, has_runner=has_runner, slow_poll_s=config.poll_interval)

    @classmethod
    def connection_key(cls, config: SlurmConfig) -> str:
        return key_of(config)

    @classmethod
    def check(cls, spec: ExperimentSpec, config: SlurmConfig) -> None:
        if config.login is not None and find_spec("asyncssh") is None:
            raise MissingExtra("login", "asyncssh", "ssh")

    def renew(self, config: SlurmConfig) -> None:
        super().renew(config)
        self._lease.renew(credential_of(config))

    async def preflight(self) -> Sequence[PreflightFinding]:
        async with self._lease.entered():
            folder = self.host.folder.parent  # nodes that see it see the experiment's, too
            return await preflight.look(self.config, self._lease, folder, may_submit=self.host.may_try_jobs)

    async def __aenter__(self) -> Self:
        await self._lease.enter_checked()
        try:
            facts = await self._lease.call(lambda cluster: cluster.facts())
        except BaseException:
            await self._lease.leave()
            raise
        cluster = self._lease.connection
        cluster.followed[self._owner] = self._followed
        self._files.enter(cluster.shell, facts.home)
        self._entered_s, self._entered_ms = loop_s(), now_ms()
        return self

    async def __aexit__(self, *_: object) -> None:
        await ended(*self._submitting.values(), *self._ending)
        await self._files.leave()
        with suppress(AssertionError):
            self._lease.connection.followed.pop(self._owner, None)
        await self._lease.leave()

    # Submitting

    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        task = self._submitting.get(spec.name)
        if task is None:
            task = asyncio.create_task(self._submit(spec), name=f"submit {spec.name}")
            self._submitting[spec.name] = task
            task.add_done_callback(lambda done: self._note_submitted(spec.name, done))
        # a cancelled call must not end `sbatch`, whose job may have been accepted
        return await asyncio.shield(task)

    def _note_submitted(self, job_name: str, task: asyncio.Task[JobHandle | NoRoom]) -> None:
        self._submitting.pop(job_name, None)
        if not task.cancelled():
            task.exception()  # all callers may have been cancelled

    async def _submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        if (handle := await self._known(spec)) is not None:
            return handle
        # one at a time, so that each counts the others
        async with nullcontext() if self.config.max_submit is None else self._counting:
            full = await self._full()
            return await self._send(spec) if full is None else full

    async def _send(self, spec: JobSpec) -> JobHandle | NoRoom:
        folder, start = await self._files.put(spec, variables_of(spec, self.config.platform))
        token = spec.runner_environment.get(protocol.ENV_TOKEN, "")
        secret = {protocol.ENV_TOKEN: token} if token else {}
        variables = {**(spec.caller_environment if self.config.login is None else {}), **secret}
        self._unanswered[spec.name] = loop_s()
        try:
            answer = await self._lease.call(
                lambda cluster: cluster.submit(
                    arguments(self.config, spec, folder.there),
                    script(self.config, start, folder.there.rpartition("/")[0]),
                    variables,
                )
            )
        except PlatformError as error:
            if not isinstance(error, PlatformUnavailable) or error.refused:
                self._unanswered.pop(spec.name, None)
            raise
        self._unanswered.pop(spec.name, None)
        return answer if isinstance(answer, NoRoom) else self._accept(spec, answer)

    async def _full(self) -> NoRoom | None:
        """No room, if the account has `maxSubmit` jobs in the queue."""
        most = self.config.max_submit
        if most is None:
            return None
        snapshot = await self._lease.call(lambda cluster: cluster.snapshot())
        there = snapshot.open_jobs + sum(at_s >= snapshot.at_s for _, at_s in self._accepted.values())
        sentence = f"the account has {there} jobs in the queue of Slurm, and maxSubmit is {most}"
        return NoRoom(why=Wait(code=WaitCode.QUOTA, sentence=sentence)) if there >= most else None

    async def _known(self, spec: JobSpec) -> JobHandle | None:
        """The job of this name that was submitted before. Raises PlatformUnavailable while that is uncertain."""
        if spec.name in self._accepted:
            return self._accepted[spec.name][0]
        name = name_of(spec)
        if self._earlier is None:
            snapshot = await self._lease.call(lambda cluster: cluster.snapshot(self._entered_s))
            self._earlier = {row.name: row for row in snapshot.rows.values() if not row.was_refused}
        if (row := self._earlier.get(name)) is not None:
            return self._accept(spec, row.id)
        since_s = self._unanswered.get(spec.name)
        if since_s is None and spec.is_repeat and spec.intended_ms < self._entered_ms:
            since_s = self._entered_s  # `sbatch` of an earlier daemon may still run
        if since_s is None and not spec.is_repeat:
            return None
        found = await self._lease.call(lambda cluster: cluster.find(name, age_s(spec.intended_ms)))
        if found is not None:
            return self._accept(spec, found.id)
        if since_s is not None and loop_s() < since_s + self.settle_s:
            raise NoAnswer("an earlier sbatch may still be accepted; the job is submitted again if it was not")
        return None

    def _accept(self, spec: JobSpec, id: str) -> JobHandle:
        self._unanswered.pop(spec.name, None)
        handle = JobHandle(
            platform=self.config.platform,
            version=1,
            job_name=spec.name,
            data=json.dumps({"id": id, "name": name_of(spec)}),
        )
        self._accepted[spec.name] = handle, loop_s()
        return handle

    # Observing

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        # also those of earlier calls: whoever asks next may get the same list
        self._followed.names |= {_id(handle): _name(handle) for handle in handles if not self._has_ended(handle)}
        snapshot = await self._lease.call(lambda cluster: cluster.snapshot())
        reports = {}
        for handle in handles:
            self._files.follow(handle.job_name)
            report = self._ended.get(handle.job_name) or await self._judged(handle, snapshot)
            if report.state.is_final and handle.job_name not in self._ended:
                self._ended[handle.job_name] = report
                self._followed.names.pop(_id(handle), None)
                self._files.hurry()
            reports[handle] = self._files.folders.told(handle.job_name, report, container_of_run(int(_id(handle)), 0))
        await self._end_requeued(handles, snapshot)
        return reports

    def _has_ended(self, handle: JobHandle) -> bool:
        return handle.job_name in self._ended

    async def _judged(self, handle: JobHandle, snapshot: Snapshot) -> Observation:
        row = snapshot.rows.get(_id(handle))
        if row is not None and row.name == _name(handle):
            self._loss.found(handle.job_name)
            return await self._reported(handle, row, snapshot)
        _, accepted_s = self._accepted.get(handle.job_name, (None, float("-inf")))
        if snapshot.at_s < accepted_s:
            return Observation(state=JobState.PENDING, wait=_ACCEPTED)
        is_lost = self._loss.is_lost(
            handle.job_name,
            has_exit=self._files.folders.pull.has_ended(handle.job_name),
            all_answered=_id(handle) in snapshot.missing,
        )
        if not is_lost:
            return Observation(state=JobState.UNKNOWN)
        return Observation(state=JobState.LOST, message="Slurm no longer knows the job")

    async def _reported(self, handle: JobHandle, row: Row, snapshot: Snapshot) -> Observation:
        complaint = user = ""
        if states.job_state(row.state) is JobState.FAILED:
            complaint = await asyncio.to_thread(self._files.complaint, handle.job_name)
        elif row.by:
            with suppress(PlatformUnavailable, BadCredentials):
                user = await self._lease.call(lambda cluster: cluster.user_name(row.by))
        return states.report(row, complaint, user, snapshot.has_running)

    async def _end_requeued(self, handles: Sequence[JobHandle], snapshot: Snapshot) -> None:
        """Cancels jobs that Slurm runs again: their attempts have ended."""
        rows = [snapshot.rows.get(_id(handle)) for handle in handles]
        again = [row.id for row in rows if row is not None and row.restarts and row.is_open]
        if again:
            await self._end(again)

    # Ending

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        ids = [_id(handle) for handle in handles if not self._has_ended(handle)]
        if not ids:
            return
        self._followed.cancelled.update(ids)
        try:
            await self._told(commands.ask_to_end(ids))
        finally:  # also if that fails: the job may be suspended since
            later = asyncio.create_task(self._end_after(handles, grace_period_s), name="scancel after the grace period")
            self._ending.add(later)
            later.add_done_callback(self._ending.discard)

    async def _end_after(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        await asyncio.sleep(grace_period_s)
        with suppress(PlatformUnavailable, BadCredentials):
            await self._end([_id(handle) for handle in handles if not self._has_ended(handle)])

    async def _end(self, ids: Collection[str]) -> None:
        if ids:
            self._followed.cancelled.update(ids)
            await self._told(commands.end(ids))

    async def _told(self, command: str) -> None:
        """Runs `scancel`, which answers 0 for ended and unknown jobs, and fails for those of others."""
        answer = await self._lease.call(lambda cluster: cluster.ask(command))
        if answer.rc != 0 and commands.is_away(answer):
            raise commands.fault_of(answer, "scancel")

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        await self._end([_id(handle) for handle in handles if not self._has_ended(handle)])
        for handle in handles:
            self._followed.names.pop(_id(handle), None)
            self._followed.cancelled.discard(_id(handle))
            self._loss.forget(handle.job_name)
            self._accepted.pop(handle.job_name, None)
            self._ended.pop(handle.job_name, None)
            self._unanswered.pop(handle.job_name, None)
            self._files.forget(handle.job_name)

    async def close(self) -> None:
        await self._files.close(self._lease.connection.shell)

    async def clean(self, job_names: Sequence[str]) -> None:
        async with self._lease.entered():
            rows = await self._lease.call(lambda cluster: cluster.waiting_and_running())
            named = [row.id for row in rows if any(is_of(row.name, name) for name in job_names)]
            await self._end(named)
            if not self._files.folders.is_entered:
                home = (await self._lease.call(lambda cluster: cluster.facts())).home
                await self._files.remove_left(self._lease.connection.shell, home)

    async def find_left(self, at_work: Collection[str], remove: Collection[str] | None) -> Sequence[LeftObject]:
        async with self._lease.entered():
            rows = await self._lease.call(lambda cluster: cluster.waiting_and_running())
            experiments = {row.id: experiment_of(row.name) for row in rows}
            left = [row for row in rows if experiments[row.id] and experiments[row.id] not in at_work]
            if remove is not None:
                left = [row for row in left if experiments[row.id] in remove]
                await self._end([row.id for row in left])
        return [
            LeftObject(experiment_id=experiments[row.id], manager="", what=f"job {row.id} {row.name}") for row in left
        ]

    # Files

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        await self._files.refresh()
        return await self._files.folders.read(handle.job_name, name, offset, limit)

    async def list_files(self, handle: JobHandle) -> Sequence[str]:
        await self._files.refresh()
        return await self._files.folders.files(handle.job_name)


def _id(handle: JobHandle) -> str:
    return str(json.loads(handle.data)["id"])


def _name(handle: JobHandle) -> str:
    return str(json.loads(handle.data)["name"])
