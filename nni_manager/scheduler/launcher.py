"""How experiments begin to be open: made, resumed, or viewed. Each may get a port of its own.

The port is opened before anything else is touched, so that a port that is taken costs nothing, and is given back when
the rest fails.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from nni_manager.config import experiment_file
from nni_manager.config.settings import own_environment
from nni_manager.domain.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus
from nni_manager.domain.ids import new_experiment_id
from nni_manager.domain.view import View, ViewWish
from nni_manager.scheduler.code_archive import find_or_pack
from nni_manager.scheduler.open_experiment import OpenExperiment, platform_class
from nni_manager.scheduler.supervisor import Supervisor
from nni_manager.store import experiments, index, migrate, nni_folder, trials
from nni_manager.store.database import classified
from nni_manager.store.folder import Folder
from nni_manager.store.index import Entry
from nni_manager.store.ownership import Ownership


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A new experiment, and on whose behalf it runs."""

    spec: ExperimentSpec
    #: What the experiment is going to be called.
    id: str = field(default_factory=new_experiment_id)
    #: The caller's environment; trials and the tuner run with it.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The caller's Python; empty: the daemon's.
    interpreter: str = ""
    #: None: no view.
    view: ViewWish | None = None
    #: Entered around the making, when a daemon that is killed meanwhile leaves a note that the next one acts on.
    around: Callable[[], AbstractAsyncContextManager[None]] = field(default=nullcontext, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopening:
    """How an experiment that exists is opened again."""

    #: None: the view it has, if it has one.
    view: ViewWish | None = None
    #: The folder of the experiment, or the one that holds it, when the daemon is not to look where it knows one.
    directory: Path | None = None
    #: Switches `debug` on.
    debug: bool = False


class Launcher:
    """Used by `Service` alone. Raises what its methods raise."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._means = supervisor.means

    async def create(self, submission: Submission) -> str:
        """Answers the new id. Nothing is left behind when it fails."""
        spec, id_ = submission.spec, submission.id
        platform_class(spec).check(spec)
        with self._supervisor.opening():
            async with self._viewed(id_, submission.view) as view:
                await self._create(id_, submission, view)
        return id_

    async def resume(self, id: str, how: Reopening) -> None:
        """Opens a stopped experiment; clears the hold or the error of one at work."""
        entry = await self._find(id, how.directory)
        experiment = self._supervisor.get(id)
        if experiment is None:
            with self._supervisor.opening():
                await self._open_again(entry, how)
        else:
            await self._go_on(experiment, entry, how)

    async def view(self, id: str, how: Reopening) -> None:
        """Opens a stopped experiment for reading only."""
        if self._supervisor.get(id) is not None:
            raise Conflict(f"experiment {id} is at work; stop it first (`nnictl stop {id}`), or just look at it")
        entry = await self._find(id, how.directory)
        with self._supervisor.opening():
            async with self._viewed(id, how.view, entry.view) as view:
                await asyncio.to_thread(_upgrade, entry.folder)
                status, now_ms = ExperimentStatus.VIEWED, self._means.clock()
                viewed = replace(entry, status=status, is_open=False, view=view, launched_ms=now_ms)
                await self._supervisor.write(lambda c: index.put(c, viewed))
                self._supervisor.give_up(id)
                self._supervisor.viewed.add(id)

    # The port

    @asynccontextmanager
    async def _viewed(
        self, id: str, wish: ViewWish | None, before: View | None = None
    ) -> AsyncIterator[View | None]:  # fmt: skip
        """`before`: the view it has, which stays when no other is asked for, and comes back on a failure."""
        if wish is None or (before is not None and not wish.is_explicit):
            yield before
            return
        door = self._means.view_door
        view = await door.open(id, wish)
        try:
            yield view
        except BaseException:
            await door.close(id)
            if before is not None:
                door.restore(id, before)
            raise

    # Making

    async def _create(self, id_: str, submission: Submission, view: View | None) -> None:
        folder = Folder(Path(submission.spec.working_directory) / id_)
        # until it is listed, whoever starts after a kill removes what there is of it
        await self._supervisor.write(lambda c: _announce(c, id_, folder))
        try:
            async with submission.around():
                await asyncio.to_thread(self._make_folder, id_, folder, submission, view)
                entry = await asyncio.to_thread(index.read_folder, folder)
                await self._supervisor.write(lambda c: index.put(c, entry))
                await self._supervisor.open(entry)
        except BaseException:
            await self._supervisor.note(lambda c: index.set_leftover(c, id_, folder))
            await asyncio.to_thread(folder.remove)
            await self._supervisor.note(lambda c: index.drop_leftover(c, id_))
            raise

    def _make_folder(self, id_: str, folder: Folder, submission: Submission, view: View | None) -> None:
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
                experiments.set_view(connection, view)
            connection.close()
        except (OSError, sqlite3.OperationalError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise InvalidInput(
                f"experimentWorkingDirectory: {folder.path} cannot be made ({reason}); choose a folder you may write to"
            ) from error

    # Opening again

    async def _find(self, id: str, directory: Path | None) -> Entry:
        """Raises NotFound, InvalidInput or StoreError."""
        if directory is None:
            return await self._supervisor.index.read(lambda c: index.get(c, id))
        folder = _folder_in(directory, id)
        found = await asyncio.to_thread(index.read_folder, folder)
        if found.id != id:
            raise InvalidInput(
                f"the folder {folder.path} is experiment {found.id}'s; ask for that, or rename the folder"
            )
        known = await self._supervisor.index.read(lambda c: index.find(c, id))
        return replace(found, view=known.view if known is not None else None)

    async def _open_again(self, entry: Entry, how: Reopening) -> None:
        id_, now_ms = entry.id, self._means.clock()
        async with self._viewed(id_, how.view, entry.view) as view:
            opened = replace(
                entry, status=ExperimentStatus.RUNNING, ended_ms=None, is_open=True, view=view, launched_ms=now_ms
            )
            # the index first: who finds a stopped folder called open there corrects it, and not the other way round
            async with self._listed(opened):
                status = await asyncio.to_thread(_reopen, entry.folder, view, now_ms, debug=how.debug)
                try:
                    await self._supervisor.open(opened)
                except BaseException:
                    await asyncio.to_thread(_put_back, entry.folder, status, entry.ended_ms or now_ms)
                    raise
            self._supervisor.viewed.discard(id_)

    @asynccontextmanager
    async def _listed(self, opened: Entry) -> AsyncIterator[None]:
        """In the index, which says what it said before after a failure."""
        before = await self._supervisor.index.read(lambda c: index.find(c, opened.id))
        await self._supervisor.note(lambda c: index.put(c, opened))
        try:
            yield
        except BaseException:
            await self._supervisor.note(lambda c: index.put(c, before) if before else index.remove(c, opened.id))
            raise

    async def _go_on(self, experiment: OpenExperiment, entry: Entry, how: Reopening) -> None:
        if how.debug:
            raise Conflict(f"experiment {entry.id} is at work; debug can be switched on when a stopped one is resumed")
        if (await experiment.database.read(experiments.load)).status is ExperimentStatus.STOPPING:
            raise Conflict(f"experiment {entry.id} is being stopped; resume it when it is (`nnictl resume {entry.id}`)")
        if entry.folder.path != experiment.folder.path:
            raise Conflict(f"experiment {entry.id} is at work in {experiment.folder.path}; stop that one first")
        async with self._viewed(entry.id, how.view, entry.view) as view:
            if view != entry.view:
                await experiment.database.try_write(lambda c: experiments.set_view(c, view))
                await self._supervisor.write(lambda c: index.set_view(c, entry.id, view))
        await experiment.loop.feed.reset()
        await experiment.database.try_write(lambda c: _clear(c, self._means.clock()))
        experiment.changes.note()
        experiment.loop.wake()


def adopt(folder: Folder) -> None:
    """Makes a folder of NNI's ours; its trials will run as if the daemon's user had created it. Blocks.

    Raises Conflict or StoreError.
    """
    nni_folder.adopt(folder, environment=own_environment(), interpreter=sys.executable)


def _announce(connection: sqlite3.Connection, id_: str, folder: Folder) -> None:
    """Raises Conflict where removing what is half made would remove what is somebody's."""
    if index.find(connection, id_) is not None or folder.path.exists():
        raise Conflict(f"there is an experiment {id_} already, or a folder {folder.path}; try again")
    index.set_leftover(connection, id_, folder)


def _ships_code(spec: ExperimentSpec) -> bool:
    return platform_class(spec).capabilities_for(spec.platforms[0].settings).ships_code


def _folder_in(directory: Path, id: str) -> Folder:
    """Raises NotFound."""
    for path in (directory / id, directory):
        if path.name == id and Folder(path).database.exists():
            return Folder(path)
    raise NotFound(f"there is no experiment folder {directory / id}; name the folder that holds it")


def _upgrade(folder: Folder) -> None:
    """A folder of an earlier version; one that cannot be written is read as it is, unless NNI made it."""
    adopt(folder)
    with suppress(StoreUnavailable):
        migrate.migrate(folder.database, "experiment")


def _reopen(folder: Folder, view: View | None, now_ms: int, *, debug: bool) -> ExperimentStatus:
    """Trials that the stop ended wait again, with the same parameters. Answers the status it had.

    Raises AlreadyOwned, having touched nothing, while another manager works on it.
    """
    if not folder.database.exists():
        raise NotFound(f"the folder of the experiment is gone: {folder.path}")
    lock = _own(folder)
    try:
        adopt(folder)
        migrate.migrate(folder.database, "experiment")
        return _set_running(folder, view, now_ms, debug=debug)
    finally:
        lock.release()


def _own(folder: Folder) -> Ownership:
    try:
        return Ownership(folder.lock, f"the experiment folder {folder.path}")
    except OSError as error:
        raise StoreUnavailable(
            f"the folder {folder.path} cannot be written ({error.strerror}), so its experiment cannot go on; make it"
            " writable, or copy it"
        ) from error


def _set_running(folder: Folder, view: View | None, now_ms: int, *, debug: bool) -> ExperimentStatus:
    connection = sqlite3.connect(folder.database, timeout=1)
    try:
        with connection:
            before = experiments.load(connection).status
            trials.reopen_stopped(connection)
            experiments.set_hold(connection, None)
            experiments.set_view(connection, view)
            if debug:
                _switch_debug_on(connection)
            experiments.set_status(connection, ExperimentStatus.RUNNING, now_ms)
            return before
    except sqlite3.DatabaseError as error:
        raise classified(folder.database, error) from error
    finally:
        connection.close()


def _put_back(folder: Folder, status: ExperimentStatus, ended_ms: int) -> None:
    """After a failure a stopped one is stopped, as the index says; its trials wait for the next `resume`."""
    if status is ExperimentStatus.STOPPED:
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(folder.database, timeout=1)) as connection:
            with connection:
                experiments.set_view(connection, None)
                experiments.set_status(connection, status, ended_ms)


def _switch_debug_on(connection: sqlite3.Connection) -> None:
    spec = experiment_file.from_canonical(json.loads(experiments.load(connection).config))
    experiments.set_config(connection, json.dumps(experiment_file.in_debug(spec).canonical))


def _clear(connection: sqlite3.Connection, now_ms: int) -> None:
    experiments.set_hold(connection, None)
    if experiments.load(connection).status in (ExperimentStatus.ERROR, ExperimentStatus.DONE):
        experiments.set_status(connection, ExperimentStatus.RUNNING, now_ms)
