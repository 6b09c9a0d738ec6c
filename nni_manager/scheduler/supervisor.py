"""All experiments this daemon works on: opens, runs and closes them, and keeps the index in step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from nni_manager.domain.errors import Conflict, NniManagerError, NotFound
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.scheduler.open_experiment import Means, OpenExperiment, open_experiment
from nni_manager.scheduler.turn import Result
from nni_manager.store import index
from nni_manager.store.database import Database
from nni_manager.store.index import Entry

log = logging.getLogger(__name__)


class Supervisor:
    """Entered by the daemon; leaving it stops all loops and leaves all jobs running."""

    def __init__(self, index_database: Database, means: Means) -> None:
        self.index = index_database
        self.means = means
        self._open: dict[str, OpenExperiment] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup
        #: Why an experiment that should be worked on is not: id → sentence.
        self.not_opened: dict[str, str] = {}
        #: Called when the last experiment was closed.
        self.on_empty: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Opens what the index calls open. One that cannot be opened is named and harms no other."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for entry in await self.index.read(index.all_entries):
                if entry.is_open:
                    await self._open_or_note(entry)
            try:
                yield
            finally:
                for task in list(self._tasks.values()):
                    task.cancel()

    def find(self, id: str) -> OpenExperiment:
        """Raises Conflict when it is closed."""
        experiment = self._open.get(id)
        if experiment is None:
            raise Conflict(self.not_opened.get(id) or f"experiment {id} is stopped; `nnictl resume {id}` opens it")
        return experiment

    def get(self, id: str) -> OpenExperiment | None:
        return self._open.get(id)

    @property
    def open_ids(self) -> tuple[str, ...]:
        return tuple(self._open)

    async def open(self, entry: Entry) -> OpenExperiment:
        """Starts to work on it. Raises AlreadyOwned, StoreError or InvalidInput."""
        if entry.id in self._open:
            return self._open[entry.id]
        if not entry.folder.database.exists():
            raise NotFound(f"the folder of experiment {entry.id} is gone: {entry.folder.path}")
        experiment = await open_experiment(entry.folder, self.means, self._note_status)
        self._open[entry.id] = experiment
        self.not_opened.pop(entry.id, None)
        self._tasks[entry.id] = self._group.create_task(self._run(experiment), name=f"experiment {entry.id}")
        return experiment

    async def closed(self, id: str) -> None:
        """Waits until nobody works on it any more."""
        task = self._tasks.get(id)
        if task is not None:
            await asyncio.wait({task})

    async def _open_or_note(self, entry: Entry) -> None:
        try:
            await self.open(entry)
        except (NniManagerError, OSError) as error:
            log.error("experiment %s cannot be opened: %s", entry.id, error)
            self.not_opened[entry.id] = f"experiment {entry.id} cannot be opened: {error}"

    async def _run(self, experiment: OpenExperiment) -> None:
        try:
            await experiment.run()
        finally:
            self._open.pop(experiment.id, None)
            self._tasks.pop(experiment.id, None)
            await asyncio.shield(experiment.close())
            if not self._open:
                self.on_empty()

    async def _note_status(self, experiment: OpenExperiment, result: Result) -> None:
        is_open = result.status is not ExperimentStatus.STOPPED
        await self.index.write(
            lambda c: index.set_status(c, experiment.id, result.status, result.ended_ms, is_open=is_open)
        )
