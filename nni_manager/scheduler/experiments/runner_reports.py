"""Reports of trial runners: observations and results of an attempt, on which the plan decides."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import AttemptDecided, InvalidInput, NotFound, StoreUnavailable, TooBusy
from nni_manager.domain.evidence import apart_ms, possible_ms
from nni_manager.domain.ids import attempt_directory, job_name
from nni_manager.domain.job import JobState
from nni_manager.scheduler.experiments.code import CodeArchive
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.scheduler.experiments.supervisor import Supervisor
from nni_manager.scheduler.turns.trial_listener import RunnerTokens
from nni_manager.shared_storage import kept_logs
from nni_manager.store.experiment import jobs, runners
from nni_manager.store.experiment.metrics import Stored
from nni_manager.store.experiment.runners import RunnerSide
from nni_manager.store.index import index
from trial_runner import protocol
from trial_runner.wire import foreign_files, full_disks

T = TypeVar("T")

#: Unstored lines of all runners above which further lines are refused with TooBusy.
MAX_UNSTORED_LINES = 20_000
#: Maximum number of processes per attempt with logs of their own.
MOST_SOURCES = 64
#: Seconds for a report to be stored; afterwards the runner must post it again.
_PATIENCE_S = 10.0
_SAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerIdentity:
    """Identity of a posting runner, after its token was checked."""

    experiment_id: str
    trial_id: str
    attempt: int
    #: Id of its container; empty: none.
    container: str = ""

    @property
    def job_name(self) -> str:
        return job_name(self.experiment_id, self.trial_id, self.attempt)


class AttemptReports:
    """The reports about one attempt. Every method but `write_log` raises AttemptDecided, and all StoreUnavailable."""

    def __init__(
        self, experiment: OpenExperiment, side: RunnerSide, runner: RunnerIdentity, all_runners: RunnerReports
    ) -> None:
        self.experiment = experiment
        self.side = side
        self._runner = runner
        self._all_runners = all_runners

    def require_open(self) -> None:
        """Raises AttemptDecided."""
        if self.side.is_decided:
            attempt = f"attempt {self._runner.attempt} of trial {self._runner.trial_id}"
            raise AttemptDecided(f"{attempt} is closed; no further reports are accepted")

    def must_stop(self) -> bool:
        """Whether the attempt must stop; the call counts as the runner's heartbeat."""
        self.require_open()
        return self.side.must_stop

    @property
    def grace_s(self) -> float:
        return self.experiment.spec.grace_period_s

    @property
    def archive(self) -> CodeArchive | None:
        """The code archive of the attempt; None: no code is sent."""
        return self.experiment.code_archive(self.side.service)

    async def code(self) -> Path | None:
        """Path of the packed code; None: no code is sent."""
        self.require_open()
        return await self.archive.path() if self.archive is not None else None

    def started(self, started_ms: int | None, sent_ms: int | None, now_ms: int) -> bool:
        """Returns whether the trial must stop. `sent_ms`: when the report was sent; both times by the runner's
        clock."""
        self.require_open()
        side = self.side
        started_ms = possible_ms(started_ms, side.intended_ms, now_ms, apart_ms(sent_ms, now_ms))
        self.experiment.loop.inbox.report({side.job_name: Observation(state=JobState.RUNNING, started_ms=started_ms)})
        return side.must_stop

    async def exited(self, runner_exit: Mapping[str, Any]) -> bool:
        """Returns whether the trial must stop. `runner_exit`: the post, which `domain.evidence.RunnerExit` reads."""
        self.require_open()
        await self._stored(self.experiment.messages.exited(self.side.job_name, self._runner_exit(runner_exit)))
        return self.side.must_stop

    def _runner_exit(self, runner_exit: Mapping[str, Any]) -> str:
        return json.dumps(
            {**runner_exit, "container": self._runner.container} if self._runner.container else runner_exit
        )

    async def offsets(self) -> dict[str, int]:
        """Outbox → number of stored bytes."""
        return await self.experiment.database.read(lambda c: jobs.offsets(c, self.side.job_name))

    async def lines(
        self, outbox: str, start: int, end: int, lines: Sequence[str], runner_exit: Mapping[str, Any] | None = None
    ) -> int:
        """Stores complete lines of one outbox; returns the number of its stored bytes.

        `runner_exit`: as in `exited`, if it came with them; it is stored only with them, in the same commit. Raises
        TooBusy, and InvalidInput for one outbox too many.
        """
        self.require_open()
        if self._all_runners.unstored_lines + len(lines) > MAX_UNSTORED_LINES and self._all_runners.unstored_lines:
            raise TooBusy("more results arrive than can be stored; send them again in a second")
        self._all_runners.unstored_lines += len(lines)
        try:
            if outbox not in self.side.outboxes and len(self.side.outboxes) >= protocol.MOST_OUTBOXES:
                raise InvalidInput(
                    f"outbox: an attempt has at most {protocol.MOST_OUTBOXES}; let its processes share outboxes"
                )
            storing = self.experiment.messages.store(
                self.side.job_name,
                outbox,
                start,
                end,
                lines,
                container=self._runner.container,
                runner_exit=self._runner_exit(runner_exit) if runner_exit else "",
            )
            receipt = await self._stored(storing)
            return receipt.offset if receipt.stored is not Stored.FENCED else (await self.offsets()).get(outbox, 0)
        finally:
            self._all_runners.unstored_lines -= len(lines)

    async def _stored(self, storing: Coroutine[Any, Any, T]) -> T:
        """Waits for the commit. Raises StoreUnavailable, as queued reports must not fill the memory; runners post
        again."""
        if trouble := self.experiment.database.trouble:
            storing.close()
            raise StoreUnavailable(f"{trouble}; nothing was stored, try again later")
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await storing
        except TimeoutError:
            raise StoreUnavailable("the report is not stored yet; post it again") from None

    async def write_log(self, file: str, offset: int, data: bytes, source: str = "") -> int:
        """Appends to a log of the attempt; repeats are ignored. Returns the number of bytes received so far.

        `source`: another process of the job, with logs of its own. Raises InvalidInput for too many of them. Logs are
        also accepted from a closed attempt: a runner reports the end first, and its job is kept while logs arrive.
        """
        experiment, side = self.experiment, self.side
        if (service := experiment.loop.services.get(side.service)) is not None:  # otherwise it was removed meanwhile
            service.forgetting.wait_longer(side.job_name)
        if file not in protocol.LOG_FILES:
            raise NotFound(f"{file!r} is not a log of a trial; use one of {', '.join(protocol.LOG_FILES)}")
        attempt, trials = attempt_directory(self._runner.trial_id, self._runner.attempt), experiment.folder.trials
        name = f"{file}-{_SAFE.sub('_', source)[:64]}" if source else file
        if source:
            await asyncio.to_thread(_require_few_sources, str(trials), attempt, name, file)
        try:
            most = experiment.spec.max_log_bytes
            return await asyncio.to_thread(kept_logs.append, str(trials), f"{attempt}/{name}", offset, data, most)
        except OSError as error:
            raise StoreUnavailable(
                f"{name} cannot be written ({full_disks.reason(error, trials)}); try again later"
            ) from error


def _require_few_sources(trials: str, attempt: str, name: str, file: str) -> None:
    """Raises InvalidInput for a log above the limit of files. Blocks."""
    foreign_files.make_folder(trials, attempt)
    with foreign_files.opened_folder(trials, attempt) as folder:
        known = [entry for entry in os.listdir(folder) if entry.startswith(f"{file}-")]
    if name not in known and len(known) >= MOST_SOURCES:
        raise InvalidInput(f"source: {file} is stored for at most {MOST_SOURCES} processes of an attempt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The answer to a runner's first post."""

    #: The parameter record, JSON.
    record: str
    #: The code archive; None: no code is sent.
    archive: CodeArchive | None
    #: Outbox → number of stored bytes.
    stored: Mapping[str, int]
    #: Its job is cancelled: the command must not start.
    must_stop: bool


class RunnerReports:
    """The reports of runners to a daemon. Every method raises NotFound, AttemptDecided or StoreUnavailable."""

    def __init__(self, supervisor: Supervisor, tokens: RunnerTokens, manager_version: str) -> None:
        self._supervisor = supervisor
        self.tokens = tokens
        self.manager_version = manager_version
        #: Received and not yet stored lines of all runners.
        self.unstored_lines = 0

    async def register(
        self,
        runner: RunnerIdentity,
        runner_version: str | None,
        channel: str,
        outboxes: Mapping[str, int] | None = None,
    ) -> Registration:
        """The runner's first post. Raises VersionRefused; the trial then fails and the experiment is in ERROR.

        `outboxes`: bytes per outbox that its container found at its start.
        """
        experiment = await self._experiment(runner)
        side = await experiment.messages.admit(
            runner.trial_id,
            runner.attempt,
            runner_version,
            channel,
            self.manager_version,
            container=runner.container,
            outboxes=outboxes,
        )
        attempt = AttemptReports(experiment, side, runner, self)
        attempt.require_open()
        experiment.loop.heartbeats.hear(side.job_name)
        return Registration(record=side.record, archive=attempt.archive, stored=side.outboxes, must_stop=side.must_stop)

    async def attempt(self, runner: RunnerIdentity) -> AttemptReports:
        """The attempt that a runner posts about; registers a runner that has not registered."""
        attempt = await self._find(runner)
        if not attempt.side.runner_version and not attempt.side.is_decided:
            await self.register(runner, None, "")
        return attempt

    async def record(self, runner: RunnerIdentity) -> str:
        """The parameter record, JSON."""
        attempt = await self.attempt(runner)
        attempt.require_open()
        return attempt.side.record

    async def offsets(self, runner: RunnerIdentity) -> dict[str, int]:
        """Number of stored bytes of each outbox."""
        attempt = await self._find(runner)
        attempt.require_open()
        return dict(attempt.side.outboxes)

    async def code(self, runner: RunnerIdentity) -> Path | None:
        """Path of the packed code; None: no code is sent."""
        return await (await self.attempt(runner)).code()

    def now_ms(self) -> int:
        """The daemon's clock, milliseconds since the epoch."""
        return self._supervisor.shared.clock()

    async def _find(self, runner: RunnerIdentity) -> AttemptReports:
        """The attempt. Raises AttemptDecided for a replaced container."""
        experiment = await self._experiment(runner)
        side = await experiment.database.read(lambda c: runners.find(c, runner.trial_id, runner.attempt))
        if runner.container and side.container not in ("", runner.container):
            raise AttemptDecided(runners.SUPERSEDED)
        if not side.is_decided:  # otherwise it would stay in the heartbeats forever
            experiment.loop.heartbeats.hear(side.job_name)
        return AttemptReports(experiment, side, runner, self)

    async def _experiment(self, runner: RunnerIdentity) -> OpenExperiment:
        experiment = self._supervisor.get(runner.experiment_id)
        if experiment is not None:
            return experiment
        id_ = runner.experiment_id
        if (await self._supervisor.index.read(lambda c: index.get(c, id_))).is_open:
            raise StoreUnavailable(f"experiment {id_} is not open yet; try again in a moment")
        raise AttemptDecided(f"experiment {id_} is stopped; no reports are accepted")
