"""One experiment in a whole manager; the test acts as the trial runner of its jobs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nni_manager.config import experiment_file
from nni_manager.platform_kit.contract import Capabilities
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.scheduler.experiments.runner_reports import RunnerIdentity, RunnerReports
from nni_manager.scheduler.experiments.submission import Submission
from nni_manager.scheduler.turns.trial_listener import RunnerTokens
from nni_manager.store.experiment import answers
from tests.api.world import MemoryPlatform, World, config, make_world
from trial_runner import protocol

OUTBOX = "outbox/main.jsonl"
VERSION = protocol.VERSION


class Posts(RunnerReports):
    """The reports of runners, each about the attempt that its runner posts about."""

    async def started(self, runner: RunnerIdentity, started_ms: int | None, sent_ms: int | None = None) -> bool:
        return (await self.attempt(runner)).started(started_ms, sent_ms, self.now_ms())

    async def exited(self, runner: RunnerIdentity, runner_exit: Mapping[str, Any]) -> bool:
        return await (await self.attempt(runner)).exited(runner_exit)

    async def lines(self, runner: RunnerIdentity, outbox: str, start: int, end: int, lines: Sequence[str]) -> int:
        return await (await self.attempt(runner)).lines(outbox, start, end, lines)

    async def write_log(self, runner: RunnerIdentity, file: str, offset: int, data: bytes, source: str = "") -> int:
        return await (await self.attempt(runner)).write_log(file, offset, data, source)

    async def must_stop(self, runner: RunnerIdentity) -> bool:
        return (await self.attempt(runner)).must_stop()


class RunnerWorld:
    """`runner`: the runner of the one trial."""

    def __init__(self, world: World, reports: Posts, id: str) -> None:
        self.world = world
        self.reports = reports
        self.id = id
        self.runner: RunnerIdentity

    @property
    def experiment(self) -> OpenExperiment:
        return self.world.supervisor.find(self.id)

    async def add_trial(self, values: object = None) -> RunnerIdentity:
        """Answers when its job runs on the platform."""
        added = await self.world.commands.add_trial(self.id, values or {"x": 0.5})
        runner = RunnerIdentity(experiment_id=self.id, trial_id=added["id"], attempt=1)
        await self.until(lambda: runner.job_name in MemoryPlatform.jobs)
        return runner

    async def until(self, condition: Callable[[], object]) -> None:
        """The experiment's changes are watched, so that nothing waits for a clock."""
        with self.experiment.changes.watch() as changed:
            async with asyncio.timeout(10):
                while not condition():
                    changed.clear()
                    await changed.wait()

    async def trial(self, runner: RunnerIdentity | None = None) -> dict[str, Any]:
        """As the API shows it."""
        id_ = (runner or self.runner).trial_id
        return json.loads(await self.world.commands.read(self.id, lambda c: answers.trial(c, id_)))  # type: ignore[no-any-return]

    async def ended(self, runner: RunnerIdentity | None = None) -> dict[str, Any]:
        with self.experiment.changes.watch() as changed:
            async with asyncio.timeout(10):
                while (trial := await self.trial(runner))["endedMs"] is None:
                    await changed.wait()
                    changed.clear()
        return trial

    async def register(self) -> None:
        await self.reports.register(self.runner, VERSION, "push")

    def folder(self, runner: RunnerIdentity | None = None) -> Path:
        return self.experiment.folder.trials / (runner or self.runner).trial_id


@asynccontextmanager
async def make_runner_world(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, version: str = VERSION, **fields: object
) -> AsyncIterator[RunnerWorld]:
    """`fields`: of the experiment's config."""
    capabilities = Capabilities(watches=True, reads_files=False, has_runner=True, ships_code=True)
    monkeypatch.setattr(MemoryPlatform, "capabilities", capabilities)
    async with make_world(folder, monkeypatch) as world:
        text = json.dumps(config(world.code, world.data, **fields))
        (world.code / "trial.py").write_text("print('hello')\n")
        id_ = await world.commands.create(Submission(spec=experiment_file.load(text, directory=world.code)))
        reports = Posts(world.supervisor, RunnerTokens(b"secret"), version)
        made = RunnerWorld(world, reports, id_)
        made.runner = await made.add_trial()
        yield made


def lines_of(*values: float) -> tuple[list[str], int]:
    """(lines, their bytes in the outbox)"""
    lines = [json.dumps({"type": "intermediate", "value": value}) for value in values]
    return lines, sum(len(line) + 1 for line in lines)
