"""The operations of the API on experiments. Each is stored before it returns; the loop carries it out."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

from nni_manager.config import edited_file, experiment_file
from nni_manager.config.service_change import ServiceWish
from nni_manager.domain.endpoint import Endpoint
from nni_manager.domain.errors import Conflict
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.space.parameters import Parameters, ParameterSource
from nni_manager.domain.text import require_finite, require_text, require_texts
from nni_manager.scheduler.disk import Disk
from nni_manager.scheduler.experiments import (
    command_writes,
    experiment_folder,
    left_jobs,
    preflight,
)
from nni_manager.scheduler.experiments.closed import ClosedExperiment
from nni_manager.scheduler.experiments.half_deleted import HalfDeleted
from nni_manager.scheduler.experiments.launcher import Launcher
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.scheduler.experiments.preflight import LeftOnService, ServicePlan
from nni_manager.scheduler.experiments.stopping import Stopping
from nni_manager.scheduler.experiments.submission import Reopening, Submission
from nni_manager.scheduler.experiments.supervisor import Supervisor
from nni_manager.scheduler.provenance_recorder import ProvenanceRecorder
from nni_manager.scheduler.tensorboard.boards import TensorBoards
from nni_manager.scheduler.tuning import imported_results
from nni_manager.store import private, stored_config
from nni_manager.store.experiment import experiments
from nni_manager.store.experiment.leftover_jobs import LeftoverJobs
from nni_manager.store.folder import Folder
from nni_manager.store.index import index
from nni_manager.store.index.index import Entry
from nni_manager.store.index.labels import write_labels
from nni_manager.store.index.overview import Live
from nni_manager.store.nni import nni_format

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Open or closed experiment for reading.
Readable = OpenExperiment | ClosedExperiment

#: Reopens with the same endpoint and folder.
_AS_IT_WAS = Reopening()


class ExperimentCommands:
    """The operations on a daemon's experiments. Raise NotFound, Conflict, InvalidInput, AlreadyOwned, StoreUnavailable,
    PlatformUnavailable."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._shared = supervisor.shared
        self._launcher = Launcher(supervisor)
        self._stopping = Stopping(supervisor)
        self.half_deleted = HalfDeleted(supervisor)
        #: All connections of the daemon, and the places on machines that its experiments share.
        self.connections = self._shared.connections
        #: Notifies changes of all open experiments, and of the list.
        self.changes = self._shared.changes
        #: The keeper of this machine.
        self.keeper = self._shared.keeper
        self.disk = Disk(self._shared.settings.data_dir, self._shared.settings.disk_warning_mib)
        self.tensorboards = TensorBoards(self, self._shared.settings.data_dir)
        self.provenance = ProvenanceRecorder(
            lambda id, record: supervisor.find(id).database.try_write(lambda c: experiments.put_provenance(c, record))
        )

    # Experiments

    async def create(self, submission: Submission) -> str:
        """Creates and starts an experiment; returns its id. A failure leaves nothing behind."""
        require_texts(submission.spec.canonical)  # a folder name may not be UTF-8
        id_ = await self._launcher.create(submission)
        self.provenance.begin(submission)
        return id_

    async def change(self, id: str, fields: Mapping[str, object], services: ServiceWish | None = None) -> None:
        """Changes limits, name, search space or training services of an open experiment, or the name of a closed one;
        field names as in the config."""
        require_texts(fields)
        if fields.keys() == {"experimentName"} and services is None and self._supervisor.get(id) is None:
            return await self._rename_closed(id, fields["experimentName"])
        experiment = self._supervisor.find(id)
        async with experiment.changing:
            before = experiment.spec
            spec = experiment_file.change(before, fields)
            wish = services(spec) if callable(services) else services
            if wish is not None:
                change = await command_writes.read_service_change(experiment, spec, wish, self._shared)
                await experiment.command(lambda c: command_writes.write_service_change(c, experiment.folder, change))
                spec = change.spec
                experiment.apply_services(spec, await asyncio.to_thread(private.load, experiment.folder.private))
            elif spec.canonical == before.canonical:
                return
            else:
                now_ms = experiment.loop.now_ms
                await experiment.command(lambda c: command_writes.change(c, before, spec, now_ms))
                experiment.apply(spec)
            # a turn with the old limits may have set DONE meanwhile
            then_ms = experiment.loop.now_ms
            await experiment.command(lambda c: command_writes.continue_if_done(c, before, spec, then_ms))
        name, platform = spec.name, stored_config.platform(spec.canonical)
        await self._supervisor.note(lambda c: index.set_config(c, id, name, platform))
        experiment.changes.note()  # its pages also show data of the index
        experiment.loop.wake()

    async def label(self, id: str, fields: Mapping[str, object]) -> None:
        """Changes ``notes``, ``tags`` or ``archived`` of an experiment, open or closed."""
        async with self._supervisor.turn(id):
            entry = await self.entry(id)
            labels = entry.labels.changed(fields)
            if labels != entry.labels:  # the folder first, as the index can be rebuilt from it
                await asyncio.to_thread(write_labels, entry.folder.path, labels)
                await self._supervisor.write(lambda c: index.set_labels(c, id, labels))
                self._supervisor.show_change(id)

    async def _rename_closed(self, id: str, name: object) -> None:
        async with self._supervisor.turn(id):
            folder = (await self.entry(id)).folder
            await self._supervisor.closed_ones.release(id)
            found, platform = await asyncio.to_thread(experiment_folder.rename, folder, name)
            await self._supervisor.write(lambda c: index.set_config(c, id, found, platform))

    async def stop(self, id: str) -> None:
        """Stops the trials and closes the experiment; returns after that. Ignores a closed one."""
        await self._stopping.stop(id)

    async def stop_all(self) -> tuple[str, ...]:
        """Stops all experiments, viewed ones included; returns their ids."""
        return await self._stopping.stop_all()

    async def resume(self, id: str, how: Reopening = _AS_IT_WAS) -> None:
        """Opens a stopped experiment again; clears hold or error of an open one.

        Raises AlreadyOwned if the endpoint's port is in use.
        """
        async with self._supervisor.turn(id):
            await self._launcher.resume(id, how)
            await self._warn_of_edited_file(id)

    async def _warn_of_edited_file(self, id: str) -> None:
        """Sets or clears the warning that an edit of the experiment file has no effect."""
        experiment = self._supervisor.get(id)
        if experiment is None:
            return
        await self.provenance.settled(id)
        origin = await experiment.database.read(experiments.provenance)
        canonical, data_dir = experiment.spec.canonical, self._shared.settings.data_dir
        warning = await asyncio.to_thread(edited_file.look, id, origin or {}, canonical, data_dir)
        if warning is None:
            self._shared.warnings.clear(id, edited_file.CODE)
        else:
            self._shared.warnings.set(id, warning)

    async def view(self, id: str, how: Reopening = _AS_IT_WAS) -> None:
        """Opens a stopped experiment for reading only; `stop` ends that.

        With a directory, also an unlisted one, such as a copied folder. Raises AlreadyOwned if the endpoint's port is
        in use.
        """
        async with self._supervisor.turn(id):
            await self._launcher.view(id, how)

    async def delete(self, id: str, also: Callable[[], Awaitable[None]]) -> None:
        """Removes a stopped experiment's folder and entry, then calls `also`.

        Raises Conflict or AlreadyOwned while a process runs it. After a kill the next daemon completes the removal.
        """
        async with self._supervisor.turn(id):
            entry = await self.entry(id)
            if (experiment := self._supervisor.get(id)) is not None:
                await experiment.require_not_stopping("delete")
                state = "open, though DONE" if entry.status is ExperimentStatus.DONE else "running"
                raise Conflict(f"experiment {id} is {state}; stop it first (`nnictl stop {id}`)")
            await asyncio.to_thread(experiment_folder.require_idle, entry.folder)
            may_have_jobs = (
                id in self._supervisor.not_opened
                or id in self._supervisor.unsettled  # it was stopped but could not be opened
                or await asyncio.to_thread(experiment_folder.has_undecided_jobs, entry.folder)
            )
            await self._shared.leftovers.end_deleted(entry, self._shared.clock(), may_have_jobs=may_have_jobs)
            await self._note_deletion(entry)
            await self._stopping.close_all(id)
            findings = await asyncio.to_thread(entry.folder.remove)
            await also()
            if findings:
                log.warning("experiment %s is deleted, but files remain; retrying: %s", id, "; ".join(findings))
                self.half_deleted.add(id, entry.folder)
            else:
                await self._supervisor.note(lambda c: index.drop_leftover(c, id))
        if entry.status is ExperimentStatus.VIEWED:
            self._supervisor.check_empty()

    async def _note_deletion(self, entry: Entry) -> None:
        """Notes the deletion, also in the folder: the next daemon does not trust a note in the index alone."""
        with suppress(OSError):  # an unwritable folder cannot be removed, either
            await asyncio.to_thread(entry.folder.mark_deletion, is_wanted=True)
        try:
            await self._supervisor.write(lambda c: index.set_leftover(c, entry.id, entry.folder))
        except BaseException:
            with suppress(OSError):
                await asyncio.to_thread(entry.folder.mark_deletion, is_wanted=False)
            raise

    async def entry(self, id: str) -> Entry:
        """The entry of an experiment. Raises NotFound."""
        return await self._supervisor.entry(id)

    async def folder(self, id: str) -> Folder:
        """The present folder of an experiment. Raises NotFound."""
        experiment = self._supervisor.get(id)
        return experiment.folder if experiment is not None else (await self.entry(id)).folder

    def known_entry(self, id: str) -> Entry | None:
        """The cached entry of an experiment; None: not cached."""
        return self._supervisor.closed_ones.known_entry(id)

    async def entries(self) -> list[Entry]:
        """The entries of all experiments, oldest first."""
        return await self._supervisor.entries()

    async def counts(self) -> dict[str, int]:
        """Number of experiments by status, without zeros."""
        return await self._supervisor.index.read(index.counts)

    async def renew_secrets(self, id: str, values: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Reference → value, of secrets that the config refers to; `environment`: stored if none is.

        Raises InvalidInput for other secrets, and if there is nothing to renew.
        """
        require_texts(values)
        async with self._supervisor.turn(id):
            experiment = self._supervisor.get(id)
            if experiment is not None:
                return await experiment.renew(values, environment)
            folder = (await self.entry(id)).folder
            await self._supervisor.closed_ones.release(id)
            await asyncio.to_thread(experiment_folder.renew_secrets, folder, values, environment)

    async def plan(self, submission: Submission) -> Sequence[ServicePlan]:
        """Plans where the first trials would run, without creating anything. Raises InvalidInput if they cannot run."""
        with self._supervisor.opening():
            plans = await preflight.plan_jobs(submission, self._shared.connections)
        self._supervisor.check_empty()
        return plans

    async def clean(self, platforms: Collection[str]) -> list[tuple[LeftoverJobs, str]]:
        """Ends leftover jobs of closed experiments on these platforms, or on all, as `Leftovers.end`. Also ends those
        of unlisted experiments at the keepers in use."""
        noted = await self._shared.leftovers.end(platforms)

        async def listed() -> Collection[str]:
            return {entry.id for entry in await self.entries()} | await self._supervisor.ids_at_work()

        return [*noted, *await left_jobs.end_unknown(self._shared, listed, platforms)]

    async def find_left(self, submission: Submission, remove: Collection[str] | None) -> Sequence[LeftOnService]:
        """Finds leftovers of experiments not open here on a config's services; removes those of the ids in `remove`."""
        with self._supervisor.opening():
            async with AsyncExitStack() as stack:
                for id in sorted(set(remove or ())):  # prevents a resume meanwhile
                    await stack.enter_async_context(self._supervisor.turn(id))
                at_work = await self._supervisor.ids_at_work()
                found = await preflight.find_left(submission, self._shared.connections, at_work, remove)
        if remove is not None:  # after a list the caller may remove what was found
            self._supervisor.check_empty()
        return found

    # Trials

    async def add_trial(self, id: str, values: object, repeats: str = "") -> dict[str, Any]:
        """Adds a trial with a user's parameters; it waits for a free slot. Returns ``id`` and ``sequenceId``.

        `repeats`: id of the trial that it repeats, as it was or changed; empty: none.
        """
        experiment = self._supervisor.find(id)
        parameters = Parameters(parameter_id=None, source=ParameterSource.CUSTOMIZED, values=values)
        require_finite("parameters", values)
        require_text("parameters", values)
        most, now_ms = experiment.spec.max_trial_number, self._shared.clock()
        added = await experiment.command(lambda c: command_writes.add_trial(c, parameters, most, now_ms, repeats))
        experiment.loop.feed.adopt(added["id"], values)
        experiment.loop.wake()
        return added

    async def kill_trial(self, id: str, trial_id: str) -> None:
        """Requests the stop of a trial, which becomes USER_CANCELED. Ignores an ended one."""
        experiment = self._supervisor.find(id)
        await experiment.command(lambda c: command_writes.kill(c, trial_id))
        experiment.loop.wake()

    async def import_data(self, id: str, data: list[dict[str, Any]]) -> None:
        """Imports results for the tuner: [{parameter, value}]; other keys of an entry are kept, and a value that is
        JSON text is parsed for the tuner, as in NNI."""
        experiment = self._supervisor.find(id)
        imported_results.check(data)
        text, now_ms = nni_format.as_javascript(data), self._shared.clock()
        await experiment.command(lambda c: experiments.add_import(c, text, now_ms))
        experiment.loop.feed.import_data(json.loads(text))  # equal to what a later process reads from the store

    # Reading

    async def read(self, id: str, function: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `function` on the experiment's database, open or closed."""
        return await self.read_by(id, lambda _: function)

    async def read_by(self, id: str, choose: Callable[[Readable], Callable[[sqlite3.Connection], T]]) -> T:
        """Runs the function that `choose` returns for this experiment's database. A cache that it makes belongs to that
        database object and ends with it."""
        experiment = self._supervisor.get(id)
        if experiment is not None:
            return await experiment.database.read(choose(experiment))
        return await self._supervisor.closed_ones.read(id, choose)

    def readable_at_once(self, id: str) -> Readable | None:
        """The experiment to read, open or cached; None: it must be opened, or is unknown."""
        return self._supervisor.get(id) or self._supervisor.closed_ones.kept(id)

    async def stored_state(self, id: str) -> tuple[Path, str]:
        """The path of an experiment's database, and its revision: data read afterwards is at least that new.

        Raises NotFound, StoreError.
        """
        found = self.readable_at_once(id)
        if found is None:
            found = await self.read_by(id, lambda readable: lambda _: readable)
        return found.database.path, found.revision

    def live(self, id: str) -> Live:
        """State of an experiment that is not stored."""
        experiment = self._supervisor.get(id)
        hold = experiment.loop.derived_hold if experiment is not None else self._supervisor.not_opened.get(id)
        warnings = (*self._shared.warnings.of(id), *self._shared.leftovers.warnings_of(id))
        services = experiment.loop.live_services if experiment is not None else ()
        return Live(
            at_work=experiment is not None,
            derived_hold=hold,
            problem=self.problem(id),
            warnings=warnings,
            services=services,
        )

    @property
    def open_experiments(self) -> tuple[OpenExperiment, ...]:
        """All open experiments."""
        found = map(self._supervisor.get, self._supervisor.open_ids)
        return tuple(experiment for experiment in found if experiment is not None)

    def at_work(self, id: str) -> OpenExperiment | None:
        """The open experiment; None: it is closed."""
        return self._supervisor.get(id)

    def watch(self, id: str) -> AbstractContextManager[asyncio.Event]:
        """A context with an event that is set by every change of an experiment; never set for a closed one."""
        experiment = self.at_work(id)
        return nullcontext(asyncio.Event()) if experiment is None else experiment.changes.watch()

    def is_open(self, id: str) -> bool:
        """Whether it is open or viewed, or failed to open, so that `stop` applies."""
        return self._supervisor.is_open(id)

    def may_have_jobs(self, id: str) -> bool:
        """Whether its jobs may still report: it is open, or its database was not writable at its stop."""
        return self._supervisor.is_open(id) or id in self._supervisor.unsettled

    def on_closed(self, callback: Callable[[str], None]) -> None:
        """Sets the callback for each closed experiment, called with its id; its TensorBoards end, too."""
        self._supervisor.on_closed = self.tensorboards.before(callback)

    def problem(self, id: str) -> str:
        """Why its endpoint is not open; empty: no problem."""
        return self._shared.endpoints.problem(id)

    def endpoint_url(self, endpoint: Endpoint) -> str:
        """The address of an endpoint, ``http://host:port/prefix/``."""
        return self._shared.endpoints.url(endpoint)
