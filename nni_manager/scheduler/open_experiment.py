"""An experiment this daemon works on: its lock, its database, its log and its loop, from open to close."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from nni_manager.config import code_paths, credentials, experiment_file
from nni_manager.config.settings import Settings
from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import InvalidInput, StoreCorrupt
from nni_manager.domain.experiment import ExperimentSpec, Hold, HoldCode
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.keeper_client import Keeper
from nni_manager.platform_kit.payload import with_stand_in
from nni_manager.scheduler import experiment_log
from nni_manager.scheduler.actions import Actions
from nni_manager.scheduler.changes import Changes
from nni_manager.scheduler.code_archive import CodeArchive
from nni_manager.scheduler.experiment_log import ExperimentLog
from nni_manager.scheduler.experiment_loop import ExperimentLoop
from nni_manager.scheduler.renewal import renew
from nni_manager.scheduler.runner_door import RunnerDoor
from nni_manager.scheduler.tuner_feed import TunerFeed
from nni_manager.scheduler.tuner_hosts import HostPlace
from nni_manager.scheduler.turn import Result
from nni_manager.scheduler.view_door import ViewDoor
from nni_manager.scheduler.warnings import DaemonWarnings
from nni_manager.store import experiments, migrate, secrets, stored_config
from nni_manager.store.database import Database
from nni_manager.store.experiments import ExperimentRow
from nni_manager.store.folder import Folder
from nni_manager.store.ownership import Ownership

log = logging.getLogger(__name__)

#: Waits before a loop that failed by a fault of ours goes on, in seconds; the last one repeats.
_RESTART_WAITS_S = (0.2, 1.0, 5.0, 30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What all experiments of a daemon share."""

    settings: Settings
    keeper: Keeper
    runner_door: RunnerDoor
    view_door: ViewDoor
    clock: Clock
    warnings: DaemonWarnings


class OpenExperiment:
    """Made by `open_experiment`. `run` works until the experiment is stopped; `close` gives everything back."""

    def __init__(
        self, *, folder: Folder, database: Database, loop: ExperimentLoop, changes: Changes, held: AsyncExitStack
    ) -> None:
        self.folder = folder
        self.database = database
        self.loop = loop
        self.changes = changes
        #: Commands that read, change and write the config take turns.
        self.changing = asyncio.Lock()
        self._held = held

    @property
    def id(self) -> str:
        return self.loop.experiment_id

    @property
    def spec(self) -> ExperimentSpec:
        return self.loop.spec

    @property
    def code_archive(self) -> CodeArchive:
        return self.loop.code_archive

    def go_by(self, spec: ExperimentSpec) -> None:
        """The config was changed, and the change is stored: loop and tuner go by it from now on."""
        has_other_space = spec.search_space != self.spec.search_space
        self.loop.spec = self.loop.feed.spec = spec
        if has_other_space:
            self.loop.feed.change_search_space(spec)

    async def renew(self, values: Mapping[str, str]) -> None:
        """Secrets given anew: stored, then used from the platform's next call on; a hold for wrong ones is cleared.

        Raises InvalidInput for one that is none of the experiment's.
        """
        known = await self.database.try_write(lambda c: renew(c, values))
        self.loop.platform.renew(credentials.filled(self.spec.platforms[0], known))
        self.loop.wake()

    async def run(self) -> None:
        """The exception barrier: a fault puts this experiment on hold, and only this one. Raises StoreCorrupt."""
        experiment_log.current.set(self.id)
        attempt = 0
        while not self.loop.closed.is_set():
            try:
                await self.loop.run()
            except Exception as error:
                if (corruption := _corruption(error)) is not None:
                    raise corruption from error
                log.exception("the loop of experiment %s failed", self.id, extra={"action": "barrier"})
                self.loop.intake.put_on_hold(_internal(error))
                await asyncio.sleep(_RESTART_WAITS_S[min(attempt, len(_RESTART_WAITS_S) - 1)])
                attempt += 1

    async def close(self) -> None:
        await self._held.aclose()


async def open_experiment(
    folder: Folder, means: Means, on_status: Callable[[OpenExperiment, Result], Awaitable[None]]
) -> OpenExperiment:
    """Takes the folder's lock, upgrades its database and builds the loop. Raises AlreadyOwned or StoreError."""
    async with AsyncExitStack() as held:
        held.callback(Ownership(folder.lock, f"the experiment folder {folder.path}").release)
        await asyncio.to_thread(migrate.migrate, folder.database, "experiment")
        changes = Changes()
        database = Database(folder.database, on_trouble=changes.note)
        held.push_async_callback(database.close)
        row, (environment, interpreter), known = await database.try_write(lambda c: _load(c, folder, means.clock()))
        spec = experiment_file.from_canonical(stored_config.read(row.config, folder.database))
        held.callback(ExperimentLog(row.id, folder.log, spec.log_level).close)
        loop = _build_loop(
            folder, spec, row, database, means, known, environment, interpreter or sys.executable, changes,
            lambda result: on_status(experiment, result),
        )  # fmt: skip
        experiment = OpenExperiment(folder=folder, database=database, loop=loop, changes=changes, held=held.pop_all())
        return experiment


def _load(
    connection: sqlite3.Connection, folder: Folder, now_ms: int
) -> tuple[ExperimentRow, tuple[dict[str, str], str], dict[str, str]]:
    """What is stored of it, its caller, its secrets."""
    if experiments.is_missing(connection):
        raise StoreCorrupt(f"the database {folder.database} holds no experiment; restore it from a backup")
    _settle_in(connection, folder)
    experiments.count_to_last_event(connection, now_ms)
    return experiments.load(connection), experiments.caller(connection), secrets.load(connection)


def _settle_in(connection: sqlite3.Connection, folder: Folder) -> None:
    """The folder may have been moved since it was written, and with it the code that lies in it."""
    before, now = experiments.folder(connection), str(folder.path)
    if before == now:
        return
    experiments.set_folder(connection, now)
    config = stored_config.read(experiments.load(connection).config, folder.database)
    if (moved := code_paths.move(config, before, now)) != config:
        experiments.set_config(connection, json.dumps(moved))


def _build_loop(
    folder: Folder, spec: ExperimentSpec, row: ExperimentRow, database: Database, means: Means,
    known: Mapping[str, str], environment: dict[str, str], interpreter: str, changes: Changes,
    on_status: Callable[[Result], Awaitable[None]],
) -> ExperimentLoop:  # fmt: skip
    place = HostPlace(
        interpreter=interpreter, environment=with_stand_in(environment), folder=folder.checkpoint,
        log_folder=folder.log,
    )  # fmt: skip
    loop: ExperimentLoop
    feed = TunerFeed(
        database, spec, place, told=row.ended_trials, patience_s=means.settings.tuner_patience_s,
        wake=lambda: loop.wake(),
    )  # fmt: skip
    actions = Actions(
        folder_of_trials=folder.trials, caller_environment=environment, runner_door=means.runner_door, clock=means.clock
    )
    loop = ExperimentLoop(
        experiment_id=row.id, spec=spec, database=database, feed=feed, keeper=means.keeper,
        platform_class=platform_class(spec), settings=credentials.filled(spec.platforms[0], known), actions=actions,
        clock=means.clock,
        runner_door=means.runner_door, safety_poll_s=means.settings.safety_poll_s, changed=changes.note,
        on_status=on_status,
    )  # fmt: skip
    return loop


def platform_class(spec: ExperimentSpec) -> type[Platform]:
    """The adapter of an experiment. Raises InvalidInput."""
    if len(spec.platforms) > 1:
        raise InvalidInput("trainingService: several platforms at once are not in this version yet; leave one")
    return registry.adapter_class(registry.find(spec.platforms[0].name))


def _corruption(error: Exception) -> StoreCorrupt | None:
    """The database itself is broken; found in whichever task came upon it."""
    if isinstance(error, ExceptionGroup):
        return next(filter(None, map(_corruption, error.exceptions)), None)
    return error if isinstance(error, StoreCorrupt) else None


def _internal(error: Exception) -> Hold:
    return Hold(
        code=HoldCode.INTERNAL,
        sentence=f"a fault in the manager ({error!r}); nothing is lost, resume tries again",
        details="".join(traceback.format_exception(error)),
    )
