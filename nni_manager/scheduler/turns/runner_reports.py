"""Reports of trial runners: their words become evidence and results of their attempt, never verdicts."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nni_manager.domain.errors import AttemptDecided, InvalidInput, NotFound, StoreUnavailable, TooBusy
from nni_manager.domain.evidence import apart_ms, possible_ms
from nni_manager.domain.ids import attempt_directory, job_name
from nni_manager.domain.job import JobReport, JobState
from nni_manager.platform_kit import kept_logs
from nni_manager.platform_kit.runner_token import RunnerTokens
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.scheduler.experiments.supervisor import Supervisor
from nni_manager.store import index, jobs, runners
from nni_manager.store.runners import RunnerSide
from trial_runner import protocol
from trial_runner.wire import foreign_files

log = logging.getLogger(__name__)

#: Lines taken and not stored yet, of all runners, above which they are asked to wait.
MAX_UNSTORED_LINES = 20_000
#: Processes of one attempt whose logs are kept apart.
MOST_SOURCES = 64
#: Seconds for lines to be stored; after that their runner keeps them, not we.
_PATIENCE_S = 10.0
_SAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOf:
    """The attempt that a post is about; its token was checked."""

    experiment_id: str
    trial_id: str
    attempt: int
    #: Which container of it; empty for one that has no identity.
    container: str = ""

    @property
    def job_name(self) -> str:
        return job_name(self.experiment_id, self.trial_id, self.attempt)


class RunnerReports:
    """The reports of runners to a daemon. Every method raises NotFound, AttemptDecided or StoreUnavailable."""

    def __init__(self, supervisor: Supervisor, tokens: RunnerTokens, manager_version: str) -> None:
        self._supervisor = supervisor
        self.tokens = tokens
        self.manager_version = manager_version
        self._unstored = 0

    async def greet(
        self, who: RunnerOf, runner_version: str | None, channel: str, outboxes: Mapping[str, int] | None = None
    ) -> None:
        """The runner's first post. Raises VersionRefused; the trial then fails and the experiment is in ERROR.

        `outboxes`: what its container found when it started.
        """
        experiment, side = await self._find(who, is_greeting=True)
        await experiment.messages.greet(
            side.job_name, runner_version, channel, self.manager_version, container=who.container, outboxes=outboxes
        )

    async def record(self, who: RunnerOf) -> str:
        """The parameter record, JSON."""
        _, side = await self._greeted(who)
        return side.record

    async def started(self, who: RunnerOf, started_ms: int | None, told_ms: int | None = None) -> bool:
        """Answers whether the trial must stop. `told_ms`: when this was said; both by the runner's clock."""
        experiment, side = await self._greeted(who)
        now_ms = self._supervisor.shared.clock()
        started_ms = possible_ms(started_ms, side.intended_ms, now_ms, apart_ms(told_ms, now_ms))
        experiment.loop.inbox.report({side.job_name: JobReport(state=JobState.RUNNING, started_ms=started_ms)})
        return side.must_stop

    async def exited(self, who: RunnerOf, word: Mapping[str, Any]) -> bool:
        """`word`: the post, which `domain.evidence.RunnerWord` reads."""
        experiment, side = await self._greeted(who)
        identity = {"container": who.container} if who.container else {}
        await experiment.messages.exited(side.job_name, json.dumps({**word, **identity}))
        return side.must_stop

    async def lines(self, who: RunnerOf, outbox: str, start: int, end: int, lines: Sequence[str]) -> int:
        """Stores complete lines of one outbox; answers how many of its bytes are stored.

        Raises TooBusy, and InvalidInput for one outbox too many.
        """
        if self._unstored + len(lines) > MAX_UNSTORED_LINES and self._unstored:
            raise TooBusy("more results come in than can be stored; they are taken again in a second")
        self._unstored += len(lines)
        try:
            experiment, side = await self._greeted(who)
            _require_few(outbox, await experiment.database.read(lambda c: jobs.offsets(c, side.job_name)))
            await _deliver(experiment, side.job_name, outbox, start, end, lines, who.container)
            return (await experiment.database.read(lambda c: jobs.offsets(c, side.job_name))).get(outbox, 0)
        finally:
            self._unstored -= len(lines)

    async def offsets(self, who: RunnerOf) -> dict[str, int]:
        """Bytes stored of each outbox."""
        experiment, side = await self._find(who)
        return await experiment.database.read(lambda c: jobs.offsets(c, side.job_name))

    async def write_log(self, who: RunnerOf, file: str, offset: int, data: bytes, source: str = "") -> int:
        """Appends to a log of the attempt; a repeat is harmless. Answers how many bytes of it have come.

        `source`: a process of the job that is not the one that reports; its logs are kept apart. Raises InvalidInput
        for one too many of them. Logs are taken also once the attempt is decided: a runner tells the end first, and its
        job is left in peace as long as it goes on.
        """
        experiment, side = await self._greeted(who, decided_too=True)
        experiment.loop.services[side.service].forgetting.wait_longer(side.job_name)
        if file not in protocol.LOG_FILES:
            raise NotFound(f"{file!r} is no log of a trial; {', '.join(protocol.LOG_FILES)} are")
        attempt, trials = attempt_directory(who.trial_id, who.attempt), experiment.folder.trials
        name = f"{file}-{_SAFE.sub('_', source)[:64]}" if source else file
        if source:
            await asyncio.to_thread(_require_few_sources, str(trials), attempt, name, file)
        try:
            most = experiment.spec.max_log_bytes
            return await asyncio.to_thread(kept_logs.append, str(trials), f"{attempt}/{name}", offset, data, most)
        except OSError as error:
            raise StoreUnavailable(f"{name} cannot be written ({error.strerror}); try again later") from error

    async def must_stop(self, who: RunnerOf) -> bool:
        """Whether the attempt is to stop; the question is the runner's heartbeat."""
        _, side = await self._greeted(who)
        return side.must_stop

    async def code(self, who: RunnerOf) -> Path | None:
        """The packed code; None when none needs to be fetched."""
        experiment, side = await self._greeted(who)
        archive = experiment.code_archive(side.service)
        return await archive.path() if archive is not None else None

    def grace_s(self, who: RunnerOf) -> float:
        return self._supervisor.find(who.experiment_id).spec.grace_period_s

    async def _greeted(self, who: RunnerOf, *, decided_too: bool = False) -> tuple[OpenExperiment, RunnerSide]:
        """The experiment and attempt that a runner posts for; nothing is taken from one that did not greet first."""
        experiment, side = await self._find(who, decided_too=decided_too)
        if not side.runner_version:
            await self.greet(who, None, "")
        return experiment, side

    async def _find(
        self, who: RunnerOf, *, is_greeting: bool = False, decided_too: bool = False
    ) -> tuple[OpenExperiment, RunnerSide]:
        """The newest container that greeted is heard, and any that greets now."""
        experiment = self._supervisor.get(who.experiment_id)
        if experiment is None:
            raise await self._closed(who.experiment_id)
        side = await experiment.database.read(
            lambda c: runners.find(c, who.trial_id, who.attempt, decided_too=decided_too)
        )
        if not is_greeting and who.container and side.container not in ("", who.container):
            raise AttemptDecided(runners.SUPERSEDED)
        experiment.loop.heartbeats.hear(side.job_name)
        return experiment, side

    async def _closed(self, experiment_id: str) -> Exception:
        """The error for an experiment that is not open; jobs of one that will be must not hear that all is over."""
        entry = await self._supervisor.index.read(lambda c: index.get(c, experiment_id))
        if entry.is_open:
            return StoreUnavailable(f"experiment {experiment_id} is not open yet; try again in a moment")
        return AttemptDecided(f"experiment {experiment_id} is stopped; nothing is taken for it")


async def _deliver(
    experiment: OpenExperiment, job_name: str, outbox: str, start: int, end: int, lines: Sequence[str], container: str
) -> None:
    """A database that cannot be written must not fill the memory: what is posted comes again."""
    if experiment.database.trouble:
        raise StoreUnavailable(f"{experiment.database.trouble}; nothing was taken, try again later")
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await experiment.messages.deliver(job_name, outbox, start, end, lines, container=container)
    except TimeoutError:
        raise StoreUnavailable("these results are not stored yet; post them again") from None


def _require_few(outbox: str, known: Mapping[str, int]) -> None:
    """Each one is a row for good, and is asked for again and again. Raises InvalidInput."""
    if outbox not in known and len(known) >= protocol.MOST_OUTBOXES:
        raise InvalidInput(f"outbox: an attempt has at most {protocol.MOST_OUTBOXES}; let its processes share some")


def _require_few_sources(trials: str, attempt: str, name: str, file: str) -> None:
    """Each one is a file. Raises InvalidInput. Blocks."""
    foreign_files.make_folder(trials, attempt)
    with foreign_files.opened_folder(trials, attempt) as folder:
        known = [entry for entry in os.listdir(folder) if entry.startswith(f"{file}-")]
    if name not in known and len(known) >= MOST_SOURCES:
        raise InvalidInput(f"source: {file} of at most {MOST_SOURCES} processes of an attempt is kept")
