"""An open experiment: its lock, database, log and loop."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import TypeVar

from nni_manager.config import credentials, experiment_file
from nni_manager.config.secrets import is_reference
from nni_manager.domain.errors import Conflict, InvalidInput, StoreCorrupt, StoreError
from nni_manager.domain.experiment import (
    ExperimentSpec,
    ExperimentStatus,
    Hold,
    HoldCode,
    LiveSpec,
    PlatformSpec,
    StoredExperiment,
)
from nni_manager.scheduler import experiment_log
from nni_manager.scheduler.changes import Changes
from nni_manager.scheduler.experiment_log import ExperimentLog
from nni_manager.scheduler.experiments.code import CodeArchive
from nni_manager.scheduler.experiments.services import Build, Services, SharedParts
from nni_manager.scheduler.turns.deliveries import JobMessages
from nni_manager.scheduler.turns.experiment_loop import ExperimentLoop
from nni_manager.scheduler.turns.turn import Result
from nni_manager.store import private, stored_config
from nni_manager.store.database import Database
from nni_manager.store.experiment import experiments, jobs, services, unrecorded_trials
from nni_manager.store.experiment.services import ServiceRow
from nni_manager.store.folder import Folder, Ownership
from nni_manager.store.index import list_summary
from nni_manager.store.migrate import migrate
from nni_manager.store.private import Kept
from trial_runner.wire.backoff import Backoff

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds before a loop is restarted after an internal error; the last value repeats.
_RESTART_WAITS_S = (0.2, 1.0, 5.0, 30.0)


class OpenExperiment:
    """Created by `open_experiment`. `run` runs until the experiment is stopped; `close` releases everything."""

    def __init__(
        self,
        *,
        build: Build,
        parts: tuple[ExperimentLoop, JobMessages, Services],
        held: AsyncExitStack,
        environment: dict[str, str],
        kept: Kept,
    ) -> None:
        """`environment`: the mapping shared with `parts`; empty if `kept` has none."""
        self.folder = build.folder
        self.database = build.database
        self.loop, self.messages, self._services = parts
        self._spec = build.spec
        self.changes = build.changes
        #: Serializes commands that change the config.
        self.changing = asyncio.Lock()
        #: Ids of trials that are missing in the database, restored from an older copy; determined at opening.
        self.unrecorded: tuple[str, ...] = ()
        #: The error of a loop that waits for its restart; empty: it runs.
        self.fault = ""
        #: The stack of the last error, and its number of consecutive repetitions.
        self._last_fault = ("", 0)
        self._failed, self._restart = asyncio.Event(), asyncio.Event()
        self._held = held
        self._environment = environment
        self._apply_kept(kept)

    @property
    def id(self) -> str:
        return self.loop.experiment_id

    @property
    def revision(self) -> str:
        """A text that changes with every change of the stored state."""
        return self.changes.revision

    @property
    def spec(self) -> ExperimentSpec:
        return self._spec.now

    def code_archive(self, service: str) -> CodeArchive | None:
        """The code archive of this training service; None: no code is sent."""
        return self._services.code(service)

    def apply(self, spec: ExperimentSpec) -> None:
        """Applies a stored change of the config to loop and tuner."""
        has_other_space = spec.search_space != self.spec.search_space
        self._spec.now = spec
        if has_other_space:
            self.loop.feed.change_search_space()

    def apply_services(self, spec: ExperimentSpec, kept: Kept) -> None:
        """Applies a stored change of training services and secrets."""
        secrets = kept.secrets
        self.apply(spec)
        for platform in spec.platforms:
            if platform.service in self._services.all:
                self._services.change(platform, secrets)
            else:
                self._services.add(platform, secrets)
        for name in self._services.all.keys() - {platform.service for platform in spec.platforms}:
            self._services.all[name].is_removed = True
        self._apply_kept(kept)
        self.loop.live()

    def try_again(self) -> None:
        """Retries all services at once, as the user fixed something."""
        for service in self.loop.services.values():
            service.try_again()
        self.start_again()

    def start_again(self) -> None:
        """Starts the next turn at once, even if the loop waits after an error."""
        self.fault = ""
        self._failed.clear()
        self._restart.set()
        self.loop.wake()

    async def failed_or(self, task: asyncio.Task[None]) -> None:
        """Waits until the loop has failed, or the task has ended."""
        failed = asyncio.create_task(self._failed.wait())
        try:
            await asyncio.wait({task, failed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            failed.cancel()

    async def require_not_stopping(self, verb: str) -> None:
        """Raises Conflict while it is being stopped, and restarts a failed loop. `verb`: the requested operation."""
        status = (await self.database.read(experiments.load)).status
        if status in (ExperimentStatus.STOPPING, ExperimentStatus.STOPPED):  # its services may still be closing
            trouble = f"; {self.fault}" if self.fault else ""
            self.start_again()
            raise Conflict(f"experiment {self.id} is being stopped; {verb} it when it is{trouble}")

    async def command(self, function: Callable[[sqlite3.Connection], T], *, is_durable: bool = False) -> T:
        """Runs a command's write; refused, not queued, while the database is not writable. `is_durable`: returns when a
        power failure cannot undo it."""
        try:
            done = await self.database.try_write(function)
            if is_durable:
                with suppress(OSError):  # a disk that cannot sync: the next commits report it
                    await self.database.sync()
        except StoreCorrupt as error:
            self.loop.inbox.give_up(error)
            raise
        self.changes.note()
        return done

    @property
    def variables(self) -> int | None:
        """Number of stored environment variables; None: missing."""
        return len(self._environment) if self._has_environment else None

    async def renew(self, values: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        """Stores renewed secrets, which are used from the next call on; clears holds for refused credentials.

        Raises as the function `renew`.
        """
        had_environment = self._has_environment
        kept = await self.database.try_write(lambda c: renew(c, self.folder, values, environment))
        self._apply_kept(kept)
        for service in self._services.all.values():
            self._services.renew(service, kept.secrets)
        if not had_environment:
            await self.loop.feed.reset()  # a running process has no environment
        self.changes.note()
        self.try_again()

    def _apply_kept(self, kept: Kept) -> None:
        self._has_environment = kept.environment is not None
        self._environment.clear()
        self._environment.update(kept.environment or {})
        gone = [service.spec for service in self._services.all.values() if service.is_removed]
        self.loop.missing = missing(self.id, self.spec, gone, kept, self.folder)

    async def run(self) -> None:
        """Runs the loop; an internal error puts only this experiment on hold. Raises StoreCorrupt."""
        experiment_log.current.set(self.id)
        backoff = Backoff(_RESTART_WAITS_S)
        while not self.loop.closed.is_set():
            try:
                await self.loop.run()
            except Exception as error:
                if (corruption := _corruption(error)) is not None:
                    raise corruption from error
                self._note_fault(error)
                await self._wait_to_restart(backoff.next_wait())

    def _note_fault(self, error: Exception) -> None:
        details = "".join(traceback.format_exception(error))
        self._log_fault(error, details)
        self.fault = f"internal error of the manager ({error!r}); nothing is lost; resume retries"
        self.loop.inbox.put_on_hold(Hold(code=HoldCode.INTERNAL, sentence=self.fault, details=details))

    def _log_fault(self, error: Exception, details: str) -> None:
        """Logs an error with its stack; a repeated one without, at the 2nd, 4th, 8th … time, as it may last for
        days."""
        last, count = self._last_fault
        count = count + 1 if details == last else 1
        self._last_fault = details, count
        if count == 1:
            log.error("the loop of experiment %s failed", self.id, exc_info=error, extra={"action": "barrier"})
        elif count.bit_count() == 1:
            log.error(
                "the loop of experiment %s failed %s times with the same error",
                self.id,
                count,
                extra={"action": "barrier"},
            )

    async def _wait_to_restart(self, seconds: float) -> None:
        self._restart.clear()
        self._failed.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._restart.wait()
        self._failed.clear()
        self.fault = ""

    async def results(self) -> str:
        """The results that lists show once it is closed; empty if they are unreadable."""
        try:
            return await self.database.read(list_summary.text_of)
        except StoreError as error:
            log.warning("lists will not show the results of experiment %s: %s", self.id, error)
            return ""

    async def close(self) -> None:
        await self._services.close_code()
        await self._held.aclose()


async def open_experiment(
    folder: Folder, shared: SharedParts, on_status: Callable[[str, Result], Awaitable[None]]
) -> OpenExperiment:
    """Locks the folder, upgrades its database and builds the loop. Raises AlreadyOwned or StoreError."""
    async with AsyncExitStack() as held:
        held.callback(Ownership(folder.lock, f"the experiment folder {folder.path}").release)
        lost = await asyncio.to_thread(folder.make_missing)
        await asyncio.to_thread(migrate, folder.require_database(), "experiment")
        changes = Changes(also=shared.changes)
        database = Database(folder.database, on_trouble=changes.note)
        held.push_async_callback(database.close)
        row, gone, kept, unrecorded = await database.try_write(lambda c: _load(c, folder, shared))
        spec = experiment_file.from_canonical(stored_config.read(row.config, folder.database))
        held.callback(ExperimentLog(row.id, folder.log, spec.log_level).close)
        for sentence in lost:
            experiment_log.current.set(row.id)
            log.warning("%s", sentence, extra={"action": "folders"})
        environment: dict[str, str] = {}
        build = Build(
            folder=folder,
            row=row,
            spec=LiveSpec(spec),
            database=database,
            shared=shared,
            environment=environment,
            changes=changes,
            secrets=kept.secrets,
            removed=gone,
        )
        parts = build.parts(lambda result: on_status(row.id, result))
        experiment = OpenExperiment(build=build, parts=parts, held=held.pop_all(), environment=environment, kept=kept)
        experiment.unrecorded = unrecorded
        return experiment


def _load(
    connection: sqlite3.Connection, folder: Folder, shared: SharedParts
) -> tuple[StoredExperiment, tuple[PlatformSpec, ...], Kept, tuple[str, ...]]:
    """(the experiment, services that left the config and still have attempts, private data, trials that exist only as
    folders), for opening it."""
    shared.require_ours(experiments.load(connection))
    experiments.set_owner(connection, shared.connections.identity)
    _settle_in(connection, folder)
    unrecorded = unrecorded_trials.note(connection, folder.trials)
    if unrecorded:
        log.warning("the database in %s is older than these trials: %s", folder.path, ", ".join(unrecorded))
    experiments.count_to_last_event(connection, shared.clock())
    gone = tuple(one for one in removed(services.load(connection)) if jobs.has_any(connection, one.service))
    return experiments.load(connection), gone, _kept(folder), unrecorded


def _kept(folder: Folder) -> Kept:
    """The private data; empty if the file is corrupt, which `renew` then replaces."""
    try:
        return private.load(folder.private)
    except StoreCorrupt as error:
        log.error("%s", error)
        return Kept()


def _settle_in(connection: sqlite3.Connection, folder: Folder) -> None:
    """Updates stored paths after the folder, with code in it, was moved."""
    row, now = experiments.load(connection), str(folder.path)
    before = row.folder
    if before == now:
        return
    experiments.set_folder(connection, now)
    config = stored_config.read(row.config, folder.database)
    if (moved := experiment_file.move_code(config, before, now)) != config:
        experiments.set_config(connection, json.dumps(moved))


def _corruption(error: Exception) -> StoreCorrupt | None:
    """The StoreCorrupt in an error or exception group; None: another error."""
    if isinstance(error, ExceptionGroup):
        return next(filter(None, map(_corruption, error.exceptions)), None)
    return error if isinstance(error, StoreCorrupt) else None


def removed(known: Mapping[str, ServiceRow]) -> tuple[PlatformSpec, ...]:
    """Services that left the config; they may have open attempts."""
    gone = [row for row in known.values() if row.is_removed and "platform" in row.settings]
    return tuple(PlatformSpec(name=row.settings["platform"], service=row.name, settings=row.settings) for row in gone)


def missing(id: str, spec: ExperimentSpec, gone: Iterable[PlatformSpec], kept: Kept, folder: Folder) -> Hold | None:
    """The hold for a private file that is missing or incomplete; None: it is complete.

    `gone`: services that left the config and still have attempts.
    """
    lacking = credentials.lacking(spec, kept.secrets, gone)
    if kept.environment is not None and not lacking:
        return None
    written = [reference for reference in lacking if not is_reference(reference)]
    what = ", ".join([*(["its creator's environment"] if kept.environment is None else []), *lacking])
    how = f"run `nnictl update credentials {id}` for values from variables and files"
    if written:
        how += f", `nnictl update platform {id} --file FILE` for values from the experiment's file"
    why = private.foreign(folder.private) or "it was not copied, or was removed"
    sentence = f"{folder.private} does not contain {what}: {why}; {how}"
    return Hold(code=HoldCode.PRIVATE_MISSING, sentence=sentence)


def renew(
    connection: sqlite3.Connection,
    folder: Folder,
    values: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
) -> Kept:
    """Stores secrets, clears holds for refused credentials, and returns the private data. `environment`: stored if none
    is.

    Raises InvalidInput for unknown secrets, and if the config refers to none.
    """
    row = experiments.load(connection)
    known = services.load(connection)
    spec = experiment_file.from_canonical(json.loads(row.config))
    credentials.require_known(spec, values, removed(known))
    _put(folder, values, environment, spec)
    for name, service in known.items():
        if service.hold is not None and service.hold.code is HoldCode.BAD_CREDENTIALS:
            services.set_hold(connection, name, None)
    if row.hold is not None and row.hold.code is HoldCode.BAD_CREDENTIALS:
        experiments.set_hold(connection, None)
    return private.load(folder.private)


def _put(
    folder: Folder, values: Mapping[str, str], environment: Mapping[str, str] | None, spec: ExperimentSpec
) -> None:
    before = _kept(folder)
    if before.environment is None and environment is not None:
        _put_anew(folder, values, spec.kept_of(environment))
    elif not values and environment is not None:
        raise InvalidInput("its config refers to no variable and no file, so it has no credentials to update")
    else:
        private.put(folder.private, values)


def _put_anew(folder: Folder, values: Mapping[str, str], environment: Mapping[str, str]) -> None:
    try:
        private.put(folder.private, values, environment=environment)
    except StoreCorrupt:
        private.replace(folder.private, Kept(environment=environment, secrets=values))
