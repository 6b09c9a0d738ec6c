"""Creates, resumes and views experiments, each with an endpoint if requested.

The endpoint's port is opened first, so that a port in use changes nothing, and is closed if the rest fails.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from nni_manager.config import admission
from nni_manager.domain.endpoint import Endpoint, EndpointWish
from nni_manager.domain.errors import Conflict, InvalidInput, PlatformUnavailable
from nni_manager.domain.experiment import ExperimentStatus, StoredExperiment
from nni_manager.platform_kit.threads import to_its_end
from nni_manager.scheduler.experiments import experiment_folder, preflight, warm_start
from nni_manager.scheduler.experiments.code import in_thread
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.scheduler.experiments.submission import Reopening, Submission
from nni_manager.scheduler.experiments.supervisor import Supervisor
from nni_manager.store.experiment import experiments, services
from nni_manager.store.folder import Folder
from nni_manager.store.index import index
from nni_manager.store.index.index import Entry


class Launcher:
    """Used by `ExperimentCommands` only; its methods list the errors."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._shared = supervisor.shared
        #: Ids of experiments that are being created.
        self._creating: set[str] = set()

    async def create(self, submission: Submission) -> str:
        """Returns the new id. A failure leaves nothing behind."""
        spec, id_ = submission.spec, submission.id
        await asyncio.to_thread(admission.check, spec)
        with self._supervisor.opening(), self._alone(id_):
            submission = await warm_start.with_results(submission, self._supervisor)
            folder, connections = Folder(Path(spec.working_directory) / id_), self._shared.connections
            # first: an endpoint would replace the one of an experiment with this id, and be closed with the refusal
            await self._supervisor.index.read(lambda c: _require_free(c, submission, folder))
            findings = await preflight.look(spec, submission.secrets, connections, folder, submission.environment)
            async with self._with_endpoint(id_, submission.endpoint) as endpoint:
                preflight.warn(findings, self._shared.warnings, id_)
                try:
                    await self._create(id_, submission, endpoint)
                except BaseException:
                    self._shared.warnings.clear(id_)
                    raise
        return id_

    async def resume(self, id: str, how: Reopening) -> None:
        """Opens a stopped experiment; clears hold or error of an open one."""
        await self._supervisor.settle(id)
        entry = await self._find(id, how.directory)
        experiment = self._supervisor.get(id)
        if experiment is None:
            with self._supervisor.opening():
                await self._open_again(entry, how)
        else:
            await self._resume_open(experiment, entry, how)

    async def view(self, id: str, how: Reopening) -> None:
        """Opens a stopped experiment for reading only."""
        await self._supervisor.settle(id)
        if self._supervisor.get(id) is not None:
            raise Conflict(f"experiment {id} is running; stop it first (`nnictl stop {id}`), or use it as it is")
        entry = await self._find(id, how.directory)
        with self._supervisor.opening():
            async with self._with_endpoint(id, how.endpoint, entry.endpoint) as endpoint:
                await self._supervisor.closed_ones.release(id)
                await asyncio.to_thread(experiment_folder.upgrade, entry.folder)
                status, now_ms = ExperimentStatus.VIEWED, self._shared.clock()
                viewed = replace(entry, status=status, is_open=False, endpoint=endpoint, launched_ms=now_ms)
                await self._supervisor.write(lambda c: index.put(c, viewed))
                self._supervisor.give_up(id)
                self._supervisor.viewed.add(id)

    @contextmanager
    def _alone(self, id: str) -> Iterator[None]:
        """A context in which no other experiment of this id is created. Raises Conflict if one is."""
        if id in self._creating:
            raise Conflict(f"an experiment {id} is being created; choose another id")
        self._creating.add(id)
        try:
            yield
        finally:
            self._creating.discard(id)

    # The port

    @asynccontextmanager
    async def _with_endpoint(
        self, id: str, wish: EndpointWish | None, before: Endpoint | None = None
    ) -> AsyncIterator[Endpoint | None]:
        """Opens the requested endpoint. `before`: the present one, kept if no other is requested, and restored on
        failure."""
        if wish is None or (before is not None and not wish.is_explicit):
            yield before
            return
        listener = self._shared.endpoints
        endpoint = await listener.open(id, wish)
        try:
            yield endpoint
        except BaseException:
            await listener.close(id)
            if before is not None:
                listener.restore(id, before)
            raise

    # Making

    async def _create(self, id_: str, submission: Submission, endpoint: Endpoint | None) -> None:
        folder = Folder(Path(submission.spec.working_directory) / id_)
        # until it is listed, the next daemon removes it after a kill
        await self._supervisor.write(lambda c: _announce(c, submission, folder))
        try:
            data_dir, now_ms = self._shared.settings.data_dir, self._shared.clock()
            owner = self._shared.connections.identity
            make = partial(
                experiment_folder.make, folder, submission, endpoint, data_dir=data_dir, owner=owner, now_ms=now_ms
            )
            await in_thread(make)
            entry = await asyncio.to_thread(index.read_folder, folder)
            await self._supervisor.write(lambda c: index.put(c, entry))
            experiment = await self._supervisor.open(entry)
        except BaseException:
            await self._supervisor.note(lambda c: index.set_leftover(c, id_, folder))
            if not await asyncio.to_thread(folder.remove):  # otherwise the next start removes it
                await self._supervisor.note(lambda c: index.drop_leftover(c, id_))
            raise
        if experiment.loop.has_runner:
            with suppress(PlatformUnavailable):  # its loop retries and reports it
                await self._shared.trial_listener.open(id_)  # so that the answer has its warnings

    # Opening again

    async def _find(self, id: str, directory: Path | None) -> Entry:
        """The entry of an experiment. Raises NotFound, InvalidInput or StoreError."""
        if directory is None:
            return await self._supervisor.entry(id)
        folder = experiment_folder.find_in(directory, id)
        found = await asyncio.to_thread(index.read_folder, folder)
        if found.id != id:
            raise InvalidInput(
                f"the folder {folder.path} belongs to experiment {found.id}; use that id, or rename the folder"
            )
        known = await self._supervisor.index.read(lambda c: index.find(c, id))
        return replace(found, endpoint=known.endpoint if known is not None else None)

    async def _open_again(self, entry: Entry, how: Reopening) -> None:
        id_, now_ms = entry.id, self._shared.clock()
        async with self._with_endpoint(id_, how.endpoint, entry.endpoint) as endpoint:
            opened = replace(
                entry,
                status=ExperimentStatus.RUNNING,
                ended_ms=None,
                is_open=True,
                endpoint=endpoint,
                launched_ms=now_ms,
                is_found=False,
                note="",
            )
            # the index first: a stopped folder listed as open is corrected, an open one listed as stopped is not
            async with self._listed(opened):
                await self._supervisor.closed_ones.release(id_)
                owner = self._shared.connections.identity
                if id_ in self._supervisor.not_opened and self._shared.is_identity_lost:
                    await asyncio.to_thread(experiment_folder.require_no_jobs_elsewhere, entry.folder, self._shared)
                async with _reopened(entry, endpoint, now_ms, how, owner):
                    await self._supervisor.open(opened)
            self._supervisor.viewed.discard(id_)

    @asynccontextmanager
    async def _listed(self, opened: Entry) -> AsyncIterator[None]:
        """Lists the experiment as open in the index; restores the former entry on failure."""
        before = await self._supervisor.index.read(lambda c: index.find(c, opened.id))
        await self._supervisor.note(lambda c: index.put(c, opened))
        try:
            yield
        except BaseException:
            await self._supervisor.note(lambda c: index.put(c, before) if before else index.remove(c, opened.id))
            raise

    async def _resume_open(self, experiment: OpenExperiment, entry: Entry, how: Reopening) -> None:
        if how.debug:
            raise Conflict(
                f"experiment {entry.id} is running; debug can be enabled only when a stopped experiment is resumed"
            )
        await experiment.require_not_stopping("resume")
        if entry.folder.path != experiment.folder.path:
            raise Conflict(f"experiment {entry.id} is running in {experiment.folder.path}; stop it first")
        async with self._with_endpoint(entry.id, how.endpoint, entry.endpoint) as endpoint:
            if endpoint != entry.endpoint:
                await experiment.database.try_write(lambda c: experiments.set_endpoint(c, endpoint))
                await self._supervisor.write(lambda c: index.set_endpoint(c, entry.id, endpoint))
        if how.secrets:
            await experiment.renew(how.secrets)
        await experiment.loop.feed.reset()
        now_ms = experiment.loop.now_ms
        await experiment.database.try_write(lambda c: _clear(c, now_ms))
        experiment.changes.note()
        experiment.try_again()


@asynccontextmanager
async def _reopened(
    entry: Entry, endpoint: Endpoint | None, now_ms: int, how: Reopening, owner: str
) -> AsyncIterator[None]:
    """Resumes the stopped experiment in its folder; restores its former status on failure."""

    def restore(before: StoredExperiment) -> None:
        experiment_folder.restore_status(entry.folder, before, entry.ended_ms or now_ms)

    reopen = partial(experiment_folder.reopen, entry.folder, endpoint, now_ms, how, owner)
    before = await to_its_end(reopen, undo=restore)
    try:
        yield
    except BaseException:
        await asyncio.to_thread(restore, before)
        raise


def _announce(connection: sqlite3.Connection, submission: Submission, folder: Folder) -> None:
    """Notes a folder that is about to be created. Raises Conflict like `_require_free`, as its removal would destroy
    existing files."""
    _require_free(connection, submission, folder)
    index.set_leftover(connection, submission.id, folder)


def _require_free(connection: sqlite3.Connection, submission: Submission, folder: Folder) -> None:
    """Raises Conflict if id or folder exist."""
    id_, is_chosen = submission.id, submission.is_id_chosen
    if index.find(connection, id_) is not None or not (folder.is_free or (is_chosen and folder.is_laid_out)):
        advice = "choose another id" if is_chosen else "try again"
        raise Conflict(f"there is an experiment {id_} already, or a folder {folder.path}; {advice}")


def _clear(connection: sqlite3.Connection, now_ms: int) -> None:
    experiments.set_hold(connection, None, now_ms)
    experiments.forget_failures(connection)
    services.clear_holds(connection, now_ms)
    if experiments.load(connection).status in (ExperimentStatus.ERROR, ExperimentStatus.DONE):
        experiments.set_status(connection, ExperimentStatus.RUNNING, now_ms)
