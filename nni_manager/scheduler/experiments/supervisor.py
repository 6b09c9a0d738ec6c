"""Opens, runs and closes all experiments of a daemon, and keeps the index up to date."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from nni_manager.domain.errors import (
    Conflict,
    Ending,
    NniManagerError,
    NotFound,
    StoreCorrupt,
    StoreError,
    StoreGone,
    StoreUnavailable,
)
from nni_manager.domain.experiment import ExperimentStatus, Hold, HoldCode
from nni_manager.scheduler.experiments import left_jobs
from nni_manager.scheduler.experiments.closed import ClosedExperiments
from nni_manager.scheduler.experiments.found_folders import FoundFolders
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment, open_experiment
from nni_manager.scheduler.experiments.services import SharedParts
from nni_manager.scheduler.turns.turn import Result
from nni_manager.store.database import Database
from nni_manager.store.experiment import experiments
from nni_manager.store.index import index
from nni_manager.store.index.index import Entry
from trial_runner.wire import shortage

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Maximum seconds that a caller waits until the index is written.
_INDEX_PATIENCE_S = 1.0
#: Seconds between two attempts to open an experiment on an unwritable disk.
_OPEN_AGAIN_S = 2.0


class Supervisor:
    """Run by the daemon with `running`; leaving it stops all loops, and jobs continue."""

    def __init__(self, index_database: Database, shared: SharedParts) -> None:
        self.index = index_database
        self.closed_ones = ClosedExperiments(index_database)
        self.found_folders = FoundFolders(index_database, shared)
        self.shared = shared
        shared.warnings.on_change = self.show_change
        shared.leftovers.at_work = lambda: self._open
        shared.leftovers.on_ended = partial(left_jobs.note_ended, shared, index_database)
        self._open: dict[str, OpenExperiment] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        #: All tasks were cancelled: no more may begin.
        self._is_closing = False
        self._settling: set[asyncio.Task[None]] = set()
        self._closing: dict[str, asyncio.Event] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._group: asyncio.TaskGroup
        #: Experiment id → why it could not be opened.
        self.not_opened: dict[str, Hold] = {}
        #: Ids of stopped experiments that could not be opened: their databases lack the stop and the last results.
        self.unsettled: set[str] = set()
        #: Ids of stopped experiments that are open for reading.
        self.viewed: set[str] = set()
        self._opening = 0
        #: The daemon is ending and opens nothing new.
        self.is_ending = False
        #: Called when no experiment is open any more.
        self.on_empty: Callable[[], None] = lambda: None
        #: Called after the index changed.
        self.on_change: Callable[[], None] = lambda: None
        #: Called with the id of a closed experiment.
        self.on_closed: Callable[[str], None] = lambda _: None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Opens the experiments listed as open. A failure is noted and affects no other."""
        failure: Exception | None = None  # of the caller: the task group would wrap it
        async with asyncio.TaskGroup() as group:
            self._group = group
            await self.found_folders.reconcile()
            entries = await self.index.read(index.all_entries)
            for entry in entries:
                if entry.endpoint is not None:
                    self.shared.endpoints.restore(entry.id, entry.endpoint)
                if entry.status is ExperimentStatus.VIEWED:
                    self.viewed.add(entry.id)
                if entry.is_open and entry.status is ExperimentStatus.STOPPED:
                    self.settle_in_background(entry.id)
                elif entry.is_open and not await self._try_open(entry):
                    self._begin_opening(entry)
            try:
                yield
            except Exception as error:
                failure = error
            finally:
                self._is_closing = True
                for task in [*self._tasks.values(), *self._settling]:
                    task.cancel()
                await self.closed_ones.close()
        if failure is not None:
            raise failure

    def find(self, id: str) -> OpenExperiment:
        """The open experiment. Raises Conflict if it is closed."""
        experiment = self._open.get(id)
        if experiment is None:
            reason = self.not_opened.get(id)
            state = "viewed, which is for reading only" if id in self.viewed else "stopped"
            raise Conflict(reason.sentence if reason else f"experiment {id} is {state}; `nnictl resume {id}` opens it")
        return experiment

    async def entries(self) -> list[Entry]:
        """The entries of all experiments, oldest first; folders that appeared in the data directory are listed."""
        entries = await self.index.read(index.all_entries)
        if await self.found_folders.look(entries):
            entries = await self.index.read(index.all_entries)
            for entry in entries:
                self._open_found(entry)
            self._tell()
        return entries

    def _open_found(self, entry: Entry) -> None:
        """Opens an experiment that a check of the folders has listed as open. Ignores others."""
        is_at_work = entry.is_open and entry.status not in (ExperimentStatus.STOPPED, ExperimentStatus.VIEWED)
        if is_at_work and not (entry.id in self._closing or entry.id in self._tasks or self.is_open(entry.id)):
            self._note_not_opened(entry.id, HoldCode.STORE_UNAVAILABLE, "it was found again and is being opened")
            self._begin_opening(entry)

    async def entry(self, id: str) -> Entry:
        """The entry of an experiment, open or closed. Raises NotFound."""
        try:
            return await self.closed_ones.entry(id)
        except NotFound:
            await self.entries()
            return await self.closed_ones.entry(id)

    def get(self, id: str) -> OpenExperiment | None:
        return self._open.get(id)

    @property
    def has_work(self) -> bool:
        """Whether an experiment is open or viewed, or failed to open."""
        return bool(self._open or self.viewed or self.not_opened)

    def is_open(self, id: str) -> bool:
        """Whether it is open, viewed or failed to open, so that it can be stopped."""
        return id in self._open or id in self.viewed or id in self.not_opened

    async def ids_at_work(self) -> frozenset[str]:
        """Ids of experiments with jobs that may be needed: open ones, and those being opened or closed."""
        listed = [entry.id for entry in await self.index.read(index.all_entries) if entry.is_open]
        return frozenset((*listed, *self._open, *self._closing, *self._tasks, *self.not_opened, *self.unsettled))

    @property
    def open_ids(self) -> tuple[str, ...]:
        return tuple(self._open)

    @property
    def to_stop(self) -> tuple[str, ...]:
        """Ids of open and viewed experiments, and of those that cannot be opened and may have running jobs."""
        return (*self._open, *sorted(self.viewed | (self.not_opened.keys() - self._open.keys())))

    async def open(self, entry: Entry, *, to_stop: bool = False) -> OpenExperiment:
        """Opens an experiment and starts its loop. Raises AlreadyOwned, StoreError or InvalidInput. `to_stop`: only to
        stop it."""
        if entry.id in self._open:
            return self._open[entry.id]
        if (closing := self._closing.get(entry.id)) is not None:
            await closing.wait()  # its folder's lock is still held
        entry.folder.require_database()
        experiment = await open_experiment(entry.folder, self.shared, self._note_status)
        if to_stop:
            await self._begin_stop(experiment)
        self._open[entry.id] = experiment
        self.not_opened.pop(entry.id, None)
        self._tasks[entry.id] = self._group.create_task(self._run(experiment), name=f"experiment {entry.id}")
        if experiment.unrecorded:
            self._keep(self._group.create_task(left_jobs.end_unrecorded(self.shared, experiment)))
        await asyncio.sleep(0)  # a task cancelled before its first step would not close the experiment
        await self.closed_ones.release(entry.id)
        self._tell()  # the index may have listed it as open before
        return experiment

    @property
    def is_opening(self) -> bool:
        return self._opening > 0

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Prevents the daemon's end while an experiment is being opened. Raises Ending."""
        if self.is_ending:
            raise Ending("the daemon is ending, as no experiment was open any more; try again in a moment")
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1

    @asynccontextmanager
    async def turn(self, id: str) -> AsyncIterator[None]:
        """Serializes commands that open, stop or remove one experiment; inside, it is either open or closed."""
        turn = self._turns.setdefault(id, asyncio.Lock())
        async with turn:
            if (closing := self._closing.get(id)) is not None:
                await closing.wait()
            yield

    def give_up(self, id: str) -> None:
        """Stops viewing or trying to open it."""
        self.viewed.discard(id)
        self.not_opened.pop(id, None)
        self.unsettled.discard(id)
        if id not in self._open and id not in self._closing and (opening := self._tasks.pop(id, None)) is not None:
            opening.cancel()

    def note_closed(self, id: str) -> None:
        """Clears the warnings of a closed experiment and calls `on_closed`; ignores an open one."""
        if not self.is_open(id):
            self.shared.warnings.clear(id)
            self.on_closed(id)

    def show_change(self, id: str) -> None:
        """Notifies its pages, if it is open, that something outside its database has changed."""
        if (experiment := self._open.get(id)) is not None:
            experiment.changes.note()

    def check_empty(self) -> None:
        if not self.has_work:
            self.on_empty()

    async def closed(self, id: str) -> None:
        """Waits until the experiment's loop has ended or failed, which may happen at each restart."""
        if (task := self._tasks.get(id)) is not None:
            experiment = self._open.get(id)
            await (asyncio.wait({task}) if experiment is None else experiment.failed_or(task))

    def settle_in_background(self, id: str) -> None:
        """Retries `settle` until the experiment is settled."""
        self.unsettled.add(id)
        self._keep(self._group.create_task(self._settle_until_done(id), name=f"settling {id}"))

    async def settle(self, id: str) -> None:
        """Opens an `unsettled` experiment only to stop it. Ignores others. Raises as `open`."""
        if id in self.unsettled:
            entry = await self.index.read(lambda c: index.get(c, id))
            experiment = await self.open(entry, to_stop=True)
            await self.closed(id)
            if experiment.loop.closed.is_set():
                self.unsettled.discard(id)

    async def write(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Writes the index for a command. Raises StoreUnavailable; nothing was changed then."""
        answer = await self.index.try_write(function)
        self._tell()
        return answer

    async def note(self, function: Callable[[sqlite3.Connection], None]) -> None:
        """Writes a fact into the index; waits briefly, and retries later if the index is not writable now."""
        write = self.index.start_write(function)
        write.add_done_callback(self._noted)
        await asyncio.wait({write}, timeout=_INDEX_PATIENCE_S)

    def _tell(self) -> None:
        self.shared.changes.note()
        self.on_change()

    def _noted(self, write: asyncio.Future[None]) -> None:
        if write.cancelled():
            return
        if (error := write.exception()) is not None:
            log.error("the index is not up to date: %s", error)
        else:
            self._tell()

    def _begin_opening(self, entry: Entry) -> None:
        self._tasks[entry.id] = self._group.create_task(self._open_later(entry), name=f"opening {entry.id}")

    async def _open_later(self, entry: Entry) -> None:
        """Retries until the disk is writable and missing files were restored, or until it is given up."""
        while True:
            await asyncio.sleep(_OPEN_AGAIN_S)
            async with self.turn(entry.id):
                if entry.id not in self.not_opened or await self._try_open(entry):
                    break

    async def _settle_until_done(self, id: str) -> None:
        while id in self.unsettled:
            async with self.turn(id):
                try:
                    await self.settle(id)
                except (StoreUnavailable, OSError) as error:
                    log.debug("experiment %s was stopped, but its database cannot record that yet: %s", id, error)
                except NniManagerError as error:
                    log.error("experiment %s was stopped, but its database cannot record that: %s", id, error)
                    self.unsettled.discard(id)
            if id in self.unsettled:
                await asyncio.sleep(_OPEN_AGAIN_S)

    async def _begin_stop(self, experiment: OpenExperiment) -> None:
        """Stores the stop. On StoreError the experiment is closed."""
        now_ms = experiment.loop.now_ms
        try:
            await experiment.database.try_write(lambda c: experiments.begin_stop(c, now_ms))
        except BaseException:
            await experiment.close()
            raise

    async def _try_open(self, entry: Entry) -> bool:
        """Tries to open it; returns False if a retry may help."""
        try:
            await self.open(entry)
        except (NniManagerError, OSError) as error:
            ends_by_itself = isinstance(error, StoreUnavailable | OSError)
            code = HoldCode.STORE_UNAVAILABLE if ends_by_itself else HoldCode.NOT_OPEN
            self._note_not_opened(entry.id, code, str(error))
            return not (ends_by_itself or isinstance(error, NotFound))  # a missing file may be restored
        except Exception as error:
            if shortage.is_shortage(error):
                self._note_not_opened(entry.id, HoldCode.STORE_UNAVAILABLE, str(error))
                return False
            log.exception("opening experiment %s failed", entry.id, extra={"action": "barrier"})
            sentence = f"{error!r}; this is a bug, please report it"
            self._note_not_opened(entry.id, HoldCode.INTERNAL, sentence)
        return True

    def _note_not_opened(self, id: str, code: HoldCode, reason: str) -> None:
        hold = Hold(code=code, sentence=f"experiment {id} cannot be opened: {reason}")
        if self.not_opened.get(id) != hold:
            log.error("%s", hold.sentence)
        self.not_opened[id] = hold

    async def _run(self, experiment: OpenExperiment) -> None:
        if await self._is_gone_after(experiment) and not self._is_closing:
            self._keep(self._group.create_task(self._open_again(experiment.id)))

    async def _open_again(self, id: str) -> None:
        """Starts opening an experiment whose database is gone. A task, as a stop may wait for `_run` in its turn."""
        async with self.turn(id):
            entry = None
            with suppress(StoreError):
                entry = await self.index.read(lambda c: index.find(c, id))
            if entry is not None and id in self.not_opened and not self._is_closing:
                self._begin_opening(entry)

    def _keep(self, task: asyncio.Task[None]) -> None:
        """Cancels the task at the end of the daemon."""
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _is_gone_after(self, experiment: OpenExperiment) -> bool:
        """Runs the experiment; returns whether it was closed because its database is gone."""
        is_gone = False
        try:
            await experiment.run()
        except StoreCorrupt as error:
            is_gone = isinstance(error, StoreGone)
            log.error("experiment %s cannot continue: %s", experiment.id, error)
            sentence = f"experiment {experiment.id} cannot continue: {error}"
            self.not_opened[experiment.id] = Hold(code=HoldCode.NOT_OPEN, sentence=sentence)
        finally:
            self._open.pop(experiment.id, None)
            self._closing[experiment.id] = closed = asyncio.Event()
            await asyncio.shield(self._close(experiment))
            self._tasks.pop(experiment.id, None)
            del self._closing[experiment.id]
            closed.set()
            experiment.changes.note()
            self.note_closed(experiment.id)
            self.check_empty()
        return is_gone

    async def _close(self, experiment: OpenExperiment) -> None:
        """Closes the experiment; its endpoint only if it is STOPPED, as one in ERROR is still viewed."""
        try:
            if experiment.loop.closed.is_set():
                await left_jobs.note(self.shared, experiment, running=False)
        finally:
            await experiment.close()
        if experiment.loop.closed.is_set():
            await self.shared.endpoints.close(experiment.id)

    async def _note_status(self, id: str, result: Result) -> None:
        is_open = result.status is not ExperimentStatus.STOPPED
        experiment = self._open.get(id)
        if not is_open and experiment is not None:  # first: after a kill in between the experiment is still open
            await left_jobs.note(self.shared, experiment, running=True)
        elif experiment is not None:
            await left_jobs.note_abandoned(self.shared, experiment)
        results = await experiment.results() if not is_open and experiment is not None else ""
        await self.note(
            lambda c: index.set_status(c, id, result.status, result.ended_ms, is_open=is_open, results=results)
        )
