"""The commands the outside may give. Every one is stored before it is answered; the loop does the rest."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from nni_manager.config import experiment_file
from nni_manager.domain.errors import Conflict, InvalidInput, NotFound
from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus, Hold
from nni_manager.domain.ids import new_experiment_id
from nni_manager.domain.parameters import Parameters, ParameterSource
from nni_manager.domain.trial import StopRequest, WaitCode
from nni_manager.scheduler.code_archive import find_or_pack
from nni_manager.scheduler.open_experiment import OpenExperiment, platform_class
from nni_manager.scheduler.supervisor import Supervisor
from nni_manager.store import experiments, index, migrate, trials
from nni_manager.store.database import Database, classified
from nni_manager.store.folder import Folder
from nni_manager.store.index import Entry

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A new experiment, and on whose behalf it runs."""

    spec: ExperimentSpec
    #: The caller's environment; trials and the tuner run with it.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The caller's Python; empty: the daemon's.
    interpreter: str = ""


class Service:
    """One per daemon. Raises NotFound, Conflict, InvalidInput and StoreUnavailable."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._means = supervisor.means

    # Experiments

    async def create(self, submission: Submission) -> str:
        """Makes the experiment and starts to work on it; answers its id. Nothing is left behind when it fails."""
        with self._supervisor.opening():
            return await self._create(submission)

    async def _create(self, submission: Submission) -> str:
        spec = submission.spec
        platform_class(spec).check(spec)
        id_ = new_experiment_id()
        folder = Folder(Path(spec.working_directory) / id_)
        try:
            await asyncio.to_thread(self._make_folder, id_, folder, submission)
            entry = await asyncio.to_thread(index.read_folder, folder)
            await self._supervisor.index.try_write(lambda c: index.put(c, entry))
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, folder.path, ignore_errors=True)
            raise
        try:
            await self._supervisor.open(entry)
        except BaseException:
            await self._supervisor.note(lambda c: index.remove(c, id_))
            await asyncio.to_thread(shutil.rmtree, folder.path, ignore_errors=True)
            raise
        return id_

    async def change(self, id: str, fields: Mapping[str, object]) -> None:
        """Changes limits, name or search space of an experiment at work; names as in the config."""
        experiment = self._writable(id)
        async with experiment.changing:
            before = experiment.spec
            spec = experiment_file.change(before, fields)
            text = json.dumps(spec.canonical)
            await experiment.database.try_write(lambda c: _change(c, text, self._means.clock()))
            experiment.loop.spec = spec
            experiment.loop.feed.spec = spec
            if spec.search_space != before.search_space:
                experiment.loop.feed.change_search_space(spec)
        await self._supervisor.note(lambda c: index.set_name(c, id, spec.name))
        experiment.loop.wake()

    async def stop(self, id: str) -> None:
        """Ends its trials, then closes it; returns when that is done. Quiet for a closed one."""
        entry = await self.entry(id)
        experiment = self._supervisor.get(id)
        if experiment is None:
            if entry.status is ExperimentStatus.VIEWED:
                await self._supervisor.index.try_write(
                    lambda c: index.set_status(c, id, ExperimentStatus.STOPPED, entry.ended_ms, is_open=False)
                )
            return
        await self._write(experiment, lambda c: _stop(c, self._means.clock()))
        experiment.loop.wake()
        await self._supervisor.closed(id)

    async def stop_all(self) -> tuple[str, ...]:
        """Answers which were stopped."""
        ids = self._supervisor.open_ids
        await asyncio.gather(*map(self.stop, ids))
        if not ids:
            self._supervisor.look_whether_empty()
        return ids

    async def resume(self, id: str) -> None:
        """Opens a stopped experiment again; clears the hold or the error of one at work."""
        entry = await self.entry(id)
        experiment = self._supervisor.get(id)
        if experiment is None:
            with self._supervisor.opening():
                await self._open_again(entry)
            return
        await experiment.loop.feed.reset()
        await self._write(experiment, lambda c: _go_on(c, self._means.clock()))
        experiment.loop.wake()

    async def view(self, id: str, working_directory: Path | None = None) -> None:
        """Opens a stopped experiment for reading only; `stop` ends that. `working_directory`: where the folder of an
        experiment lies that this daemon does not know, for instance because it was copied here."""
        if working_directory is not None:
            folder = Folder(working_directory / id)
            if not folder.database.exists():
                raise NotFound(f"there is no experiment folder {folder.path}")
            found = await asyncio.to_thread(index.read_folder, folder)
            entry = replace(found, id=id, is_open=False)
        else:
            entry = await self.entry(id)
        if self._supervisor.get(id) is not None:
            raise Conflict(f"experiment {id} is at work; stop it first (`nnictl stop {id}`), or just look at it")
        viewed = replace(entry, status=ExperimentStatus.VIEWED)
        await self._supervisor.index.try_write(lambda c: index.put(c, viewed))

    async def delete(self, id: str) -> None:
        """Removes a stopped experiment's folder and its entry."""
        entry = await self.entry(id)
        if self._supervisor.get(id) is not None:
            raise Conflict(f"experiment {id} is at work; stop it first (`nnictl stop {id}`)")
        await self._supervisor.index.try_write(lambda c: index.remove(c, id))
        await asyncio.to_thread(entry.folder.remove)

    async def entry(self, id: str) -> Entry:
        return await self._supervisor.index.read(lambda c: index.get(c, id))

    async def entries(self) -> list[Entry]:
        """Oldest first."""
        return await self._supervisor.index.read(index.all_entries)

    # Trials

    async def add_trial(self, id: str, values: object) -> dict[str, Any]:
        """A trial with parameters given by a person; waits for a free slot. Answers ``id`` and ``sequenceId``."""
        experiment = self._writable(id)
        parameters = Parameters(parameter_id=None, source=ParameterSource.CUSTOMIZED, values=values)
        try:
            json.dumps(values, allow_nan=False)
        except ValueError as error:
            raise InvalidInput(f"parameters: {error}; NaN and infinity cannot be given to a trial") from None
        most, now_ms = experiment.spec.max_trial_number, self._means.clock()
        added = await self._write(experiment, lambda c: _add_trial(c, parameters, most, now_ms))
        experiment.loop.wake()
        return added

    async def kill_trial(self, id: str, trial_id: str) -> None:
        """Asks a trial to end; it is USER_CANCELED once it has. Quiet for one that has ended."""
        experiment = self._writable(id)
        await self._write(experiment, lambda c: _kill(c, trial_id))
        experiment.loop.wake()

    async def import_data(self, id: str, data: list[dict[str, Any]]) -> None:
        """Results from elsewhere, for the tuner: [{parameter, value}]."""
        experiment = self._writable(id)
        text, now_ms = json.dumps(data), self._means.clock()
        await self._write(experiment, lambda c: experiments.add_import(c, text, now_ms))
        experiment.loop.feed.import_data(data)

    # Reading

    async def read(self, id: str, function: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `function` on the experiment's database, open or closed."""
        experiment = self._supervisor.get(id)
        if experiment is not None:
            return await experiment.database.read(function)
        entry = await self.entry(id)
        if not entry.folder.database.exists():
            raise NotFound(f"the folder of experiment {id} is gone: {entry.folder.path}")
        database = Database(entry.folder.database)
        try:
            return await database.read(function)
        finally:
            await database.close()

    def derived_hold(self, id: str) -> Hold | None:
        """Why nothing new starts although no hold is recorded: it will end by itself."""
        experiment = self._supervisor.get(id)
        return experiment.loop.derived_hold if experiment is not None else None

    def at_work(self, id: str) -> OpenExperiment | None:
        """None for a closed one."""
        return self._supervisor.get(id)

    def problem(self, id: str) -> str:
        """Why an experiment that should be at work is not; empty when all is well."""
        return self._supervisor.not_opened.get(id, "")

    # Helpers

    async def _open_again(self, entry: Entry) -> None:
        await asyncio.to_thread(_reopen, entry.folder, self._means.clock())
        await self._supervisor.note(
            lambda c: index.set_status(c, entry.id, ExperimentStatus.RUNNING, None, is_open=True)
        )
        await self._supervisor.open(entry)

    def _writable(self, id: str) -> OpenExperiment:
        experiment = self._supervisor.find(id)
        return experiment

    async def _write(self, experiment: OpenExperiment, function: Callable[[sqlite3.Connection], T]) -> T:
        """A command is refused, not queued, while it cannot be stored."""
        return await experiment.database.try_write(function)

    def _make_folder(self, id_: str, folder: Folder, submission: Submission) -> None:
        """Runs in a thread. Raises InvalidInput when the folder cannot be made."""
        try:
            folder.create(self._means.settings.data_dir)
            if _ships_code(submission.spec):
                find_or_pack(Path(submission.spec.trial_code_directory), folder.code)
            migrate.migrate(folder.database, "experiment")
            connection = sqlite3.connect(folder.database)
            with connection:
                experiments.create(
                    connection, id=id_, config=json.dumps(submission.spec.canonical),
                    environment=submission.environment, interpreter=submission.interpreter or sys.executable,
                    folder=str(folder.path), now_ms=self._means.clock(),
                )  # fmt: skip
            connection.close()
        except (OSError, sqlite3.OperationalError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise InvalidInput(
                f"experimentWorkingDirectory: {folder.path} cannot be made ({reason}); choose a folder you may write to"
            ) from error


def _ships_code(spec: ExperimentSpec) -> bool:
    return platform_class(spec).capabilities_for(spec.platforms[0].settings).ships_code


def _change(connection: sqlite3.Connection, text: str, now_ms: int) -> None:
    experiments.set_config(connection, text)
    if experiments.load(connection).status is ExperimentStatus.DONE:
        experiments.set_status(connection, ExperimentStatus.RUNNING, now_ms)


def _stop(connection: sqlite3.Connection, now_ms: int) -> None:
    row = experiments.load(connection)
    experiments.count_time(connection, now_ms, active=row.status.is_active)
    experiments.set_status(connection, ExperimentStatus.STOPPING, now_ms)


def _go_on(connection: sqlite3.Connection, now_ms: int) -> None:
    experiments.set_hold(connection, None)
    if experiments.load(connection).status in (ExperimentStatus.ERROR, ExperimentStatus.DONE):
        experiments.set_status(connection, ExperimentStatus.RUNNING, now_ms)


def _reopen(folder: Folder, now_ms: int) -> None:
    """Trials that the stop ended wait again, with the same parameters."""
    migrate.migrate(folder.database, "experiment")
    connection = sqlite3.connect(folder.database, timeout=1)
    try:
        with connection:
            trials.reopen_stopped(connection)
            experiments.set_hold(connection, None)
            experiments.set_status(connection, ExperimentStatus.RUNNING, now_ms)
    except sqlite3.DatabaseError as error:
        raise classified(folder.database, error) from error
    finally:
        connection.close()


def _add_trial(connection: sqlite3.Connection, parameters: Parameters, most: int | None, now_ms: int) -> dict[str, Any]:
    made = experiments.load(connection).next_sequence_id
    if most is not None and made >= most:
        raise Conflict(f"maxTrialNumber ({most}) is reached; raise it first")
    (id_,) = trials.fresh_ids(connection, 1)
    sequence_id = trials.add(
        connection, id=id_, parameters=parameters, wait_code=WaitCode.CONCURRENCY,
        wait_sentence="waits for a free slot", now_ms=now_ms,
    )  # fmt: skip
    return {"id": id_, "sequenceId": sequence_id}


def _kill(connection: sqlite3.Connection, trial_id: str) -> None:
    if connection.execute("SELECT 1 FROM trials WHERE id = ?", (trial_id,)).fetchone() is None:
        raise NotFound(f"there is no trial {trial_id}")
    trials.ask_stop(connection, trial_id, StopRequest.USER)
