"""Reports of trial runners: observations and results of an attempt, on which the plan decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nni_manager.domain.errors import AttemptDecided, StoreUnavailable
from nni_manager.scheduler.experiments.attempt_reports import AttemptReports, RunnerIdentity, Unstored
from nni_manager.scheduler.experiments.code import CodeArchive
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.scheduler.experiments.supervisor import Supervisor
from nni_manager.scheduler.turns.runner_token import RunnerTokens
from nni_manager.store.experiment import runners
from nni_manager.store.index import index


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The answer to a runner's first post."""

    #: The parameter record, JSON.
    record: str
    #: The code archive; None: no code is sent.
    archive: CodeArchive | None
    #: Outbox → bytes stored.
    stored: Mapping[str, int]


class RunnerReports:
    """The reports of runners to a daemon. Every method raises NotFound, AttemptDecided or StoreUnavailable."""

    def __init__(self, supervisor: Supervisor, tokens: RunnerTokens, manager_version: str) -> None:
        self._supervisor = supervisor
        self.tokens = tokens
        self.manager_version = manager_version
        self._unstored = Unstored()

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
        attempt = AttemptReports(experiment, side, runner, self._unstored)
        attempt.require_open()
        experiment.loop.heartbeats.hear(side.job_name)
        return Registration(record=side.record, archive=attempt.archive, stored=side.outboxes)

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

    async def started(self, runner: RunnerIdentity, started_ms: int | None, sent_ms: int | None = None) -> bool:
        """As `AttemptReports.started`."""
        return (await self.attempt(runner)).started(started_ms, sent_ms, self.now_ms())

    async def exited(self, runner: RunnerIdentity, runner_exit: Mapping[str, Any]) -> bool:
        """As `AttemptReports.exited`."""
        return await (await self.attempt(runner)).exited(runner_exit)

    async def lines(self, runner: RunnerIdentity, outbox: str, start: int, end: int, lines: Sequence[str]) -> int:
        """As `AttemptReports.lines`."""
        return await (await self.attempt(runner)).lines(outbox, start, end, lines)

    async def offsets(self, runner: RunnerIdentity) -> dict[str, int]:
        """Bytes stored of each outbox."""
        attempt = await self._find(runner)
        attempt.require_open()
        return dict(attempt.side.outboxes)

    async def write_log(self, runner: RunnerIdentity, file: str, offset: int, data: bytes, source: str = "") -> int:
        """As `AttemptReports.write_log`."""
        return await (await self.attempt(runner)).write_log(file, offset, data, source)

    async def must_stop(self, runner: RunnerIdentity) -> bool:
        """As `AttemptReports.must_stop`."""
        return (await self.attempt(runner)).must_stop()

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
        if not side.is_decided:  # else it would stay in the heartbeats for ever
            experiment.loop.heartbeats.hear(side.job_name)
        return AttemptReports(experiment, side, runner, self._unstored)

    async def _experiment(self, runner: RunnerIdentity) -> OpenExperiment:
        experiment = self._supervisor.get(runner.experiment_id)
        if experiment is None:
            raise await self._closed(runner.experiment_id)
        return experiment

    async def _closed(self, experiment_id: str) -> Exception:
        """The error for an experiment that is not open; a retryable one if it is listed as open."""
        entry = await self._supervisor.index.read(lambda c: index.get(c, experiment_id))
        if entry.is_open:
            return StoreUnavailable(f"experiment {experiment_id} is not open yet; try again in a moment")
        return AttemptDecided(f"experiment {experiment_id} is stopped; nothing is taken for it")
