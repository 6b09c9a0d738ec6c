"""A SQLite database with one writer thread: writes that share a transaction, and concurrent reads."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from nni_manager.domain.clock import Durations
from nni_manager.domain.errors import StoreCorrupt, StoreError, StoreGone, StoreUnavailable
from nni_manager.platform_kit.threads import SteadyThreads
from nni_manager.store.connection import (
    Connection,
    classified,
    connect,
    is_transient,
    left_after,
    restore_modes,
    sync_log,
    tidy,
    trouble,
)
from nni_manager.store.readers import Readers
from trial_runner.wire.backoff import Backoff

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Write(Generic[T]):
    """A queued function, and the future that gets its result."""

    function: Callable[[Connection], T]
    future: asyncio.Future[T] | None
    #: Waits until the file can be written, without a limit.
    is_patient: bool = True
    result: T | None = None
    error: BaseException | None = None


def run(path: Path, connection: Connection, batch: list[Write[Any]]) -> None:
    """Runs a batch of writes as one transaction. A function that raises is rolled back alone."""
    connection.execute("BEGIN IMMEDIATE")
    if len(batch) == 1:  # the usual case needs no savepoint
        connection.execute("COMMIT" if _attempt(path, connection, batch[0]) else "ROLLBACK")
        return
    for write in batch:
        connection.execute("SAVEPOINT one")
        if not _attempt(path, connection, write):
            connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")
    connection.execute("COMMIT")


def _attempt(path: Path, connection: Connection, write: Write[Any]) -> bool:
    """Whether the function succeeded; otherwise `write.error` is set. Raises transient errors, which affect the
    batch."""
    write.result = write.error = None
    try:
        write.result = write.function(connection)
    except Exception as error:
        if isinstance(error, sqlite3.DatabaseError) and is_transient(error):
            raise
        write.error = classified(path, error) if isinstance(error, sqlite3.DatabaseError) else error
        return False
    return True


def _write_nothing(connection: Connection) -> None:
    """Writes an unchanged page: a transaction without a write succeeds even on a full disk."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version={version}")


def resolve(batch: list[Write[Any]]) -> None:
    """Resolves the futures of a batch; runs on their event loop."""
    for write in batch:
        assert write.future is not None
        if write.future.done():
            continue
        if write.error is not None:
            write.future.set_exception(write.error)
        else:
            write.future.set_result(write.result)


log = logging.getLogger(__name__)

#: Seconds between attempts while the file is not writable; the last value repeats.
_RETRY_WAITS_S = (0.05, 0.1, 0.2, 0.5, 1.0)
#: Seconds that a read waits for a file that is being restored.
_RESTORE_PATIENCE_S = 10.0
#: Maximum number of functions per commit, which bounds how long a result waits in a burst.
_MAX_BATCH = 256
#: All commits of this process, to any database.
commits = Durations()

_read_threads = SteadyThreads(max_workers=4, thread_name_prefix="store-read")


class Database:
    """Open for one event loop. The writer thread starts with the first write and ends with `close`.

    `may_change`: False for a database that is only read, and given up once its file has changed. `is_durable`: a power
    failure undoes no commit. `restore`: recreates the file after it was removed, replaced or damaged; called with the
    connection to the former file, which it closes, or None; None: the database is given up.
    """

    def __init__(
        self,
        path: Path,
        on_trouble: Callable[[], None] | None = None,
        *,
        may_change: bool = True,
        is_durable: bool = False,
        restore: Callable[[Connection | None], None] | None = None,
    ) -> None:
        self.path = path
        self._is_durable = is_durable
        self._restore = restore
        #: Number of commits. It grows before a result is delivered, so a later read is never older than the value seen.
        self.commits = 0
        #: Number of commits that surely survive a power failure.
        self._synced = 0
        #: Why the file is not writable at the moment; empty: it is.
        self.trouble = ""
        self._on_trouble = on_trouble
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Write[Any] | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._closing = threading.Event()
        self._readers = Readers(path, may_change=may_change)
        #: The file that was opened for writing; None: none yet.
        self._file: os.stat_result | None = None

    @property
    def queued(self) -> int:
        """Number of queued writes."""
        return self._queue.qsize()

    async def write(self, function: Callable[[Connection], T]) -> T:
        """Runs `function` in a transaction and returns its result after the commit. Raises its exceptions."""
        return await self.start_write(function)

    async def try_write(self, function: Callable[[Connection], T]) -> T:
        """As `write`, but refused instead of queued while the file is not writable: for interactive commands.

        Raises StoreUnavailable; nothing was changed then.
        """
        if self.trouble:
            raise _refusal(self.trouble)
        future: asyncio.Future[T] = self._loop.create_future()
        self._submit(Write(function, future, is_patient=False))
        return await future

    def start_write(self, function: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Queues a write synchronously; writes run in the order they were started."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._submit(Write(function, future))
        return future

    def post(self, function: Callable[[Connection], object]) -> None:
        """Queues a write without a result, in order with the others. An exception is logged."""
        self._submit(Write(function, None))

    async def read(self, function: Callable[[Connection], T]) -> T:
        """Runs `function` on a read-only connection, in a thread; sees committed data."""
        return await self._loop.run_in_executor(_read_threads, self._read, function)

    async def sync(self) -> None:
        """Returns when all commits so far survive a power failure. Raises OSError."""
        commits = self.commits
        if commits > self._synced:
            await asyncio.to_thread(sync_log, self.path)
            self._synced = max(self._synced, commits)

    async def close(self) -> None:
        """Commits queued writes (unless the file is not writable), then closes all connections. Idempotent."""
        writer, self._writer = self._writer, None
        self._closing.set()
        self._readers.close()  # the writer last, as read-only connections cannot remove the write-ahead log
        if writer is not None:
            self._queue.put(None)
            await self._loop.run_in_executor(None, writer.join)
        else:
            await self._loop.run_in_executor(None, tidy, self.path)

    def _submit(self, write: Write[Any]) -> None:
        if self._closing.is_set():
            raise StoreUnavailable(f"{self.path} is closed")
        if self._writer is None:
            writer = threading.Thread(target=self._work, name=f"store-write {self.path}", daemon=True)
            try:
                writer.start()
            except RuntimeError as error:  # a temporary shortage
                raise StoreUnavailable(f"{self.path} cannot be written now: {error}") from error
            self._writer = writer
        self._queue.put(write)

    def _read(self, function: Callable[[Connection], T]) -> T:
        if self._restore is not None and self._is_gone():
            self._await_restored()
        try:
            return self._readers.read(function)
        except StoreUnavailable as error:
            if self._is_gone():  # SQLite only reports that it cannot open the file
                raise self._gone() from error
            raise
        except StoreCorrupt:
            if self._restore is None:
                raise
            self._await_restored()
            return self._readers.read(function)

    def _await_restored(self) -> None:
        """Returns when the writer, which restores the file, has written something. Raises StoreUnavailable."""
        written = threading.Event()

        def write(connection: Connection) -> None:
            _write_nothing(connection)
            ((found,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
            if found != "ok":
                raise StoreCorrupt(f"the database {self.path} cannot be read ({found})")
            written.set()

        self._submit(Write(write, None))
        if not written.wait(_RESTORE_PATIENCE_S):
            raise StoreUnavailable(f"the database {self.path} was lost and cannot be restored yet")

    # The writer thread

    def _work(self) -> None:
        connection: Connection | None = None
        while True:
            batch, last = self._next_batch()
            if batch:
                connection = self._commit_until_done(connection, batch)
                self._answer(batch)
            if last:
                break
        if connection is not None:
            connection.close()

    def _next_batch(self) -> tuple[list[Write[Any]], bool]:
        batch: list[Write[Any]] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) == _MAX_BATCH:
                return batch, False
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _commit_until_done(self, connection: Connection | None, batch: list[Write[Any]]) -> Connection | None:
        backoff = Backoff(_RETRY_WAITS_S)
        is_damaged, is_new = False, False
        while True:
            try:
                if is_damaged or self._is_gone():
                    if self._restore is None or is_new:
                        return self._give_up(connection, batch, self._gone())
                    self._restored(connection, self._restore)
                    connection, is_damaged, is_new = None, False, True
                connection = connection or self._connected()
                self._file = self._file or os.stat(self.path)
                with commits.measured():
                    run(self.path, connection, batch or [Write(_write_nothing, None)])
                if self._restore is not None and any(isinstance(write.error, StoreCorrupt) for write in batch):
                    is_damaged = True
                    continue
                self.commits += 1
                self._set_trouble("")
                return connection
            except (OSError, StoreError) as error:  # of `restore`
                connection = None
                return self._give_up(connection, batch, StoreUnavailable(f"{self.path} cannot be restored: {error}"))
            except sqlite3.DatabaseError as error:
                connection = left_after(connection, error)
                if self._restore is not None and isinstance(classified(self.path, error), StoreCorrupt):
                    is_damaged = True
                    continue
                if not is_transient(error) or (self._closing.is_set() and backoff.failures):
                    return self._give_up(connection, batch, classified(self.path, error))
                self._set_trouble(trouble(self.path, error))
                batch[:] = self._refuse_impatient(
                    batch
                )  # an empty batch is tried, too, to notice the end of the trouble
            self._closing.wait(backoff.next_wait())

    def _connected(self) -> Connection:
        if not self.trouble:
            return connect(self.path, is_durable=self._is_durable)
        with self._readers.released():
            restore_modes(self.path)
            return connect(self.path, is_durable=self._is_durable)

    def _restored(self, connection: Connection | None, restore: Callable[[Connection | None], None]) -> None:
        """Restores the file. Raises OSError or StoreError."""
        with self._readers.released():
            restore(connection)
        self._file = None

    def _is_gone(self) -> bool:
        """Whether the file was removed, replaced or emptied; SQLite would continue writing into the removed one."""
        if self._file is None:
            return False
        try:
            now = os.stat(self.path)
            return not os.path.samestat(self._file, now) or now.st_size == 0 < self._file.st_size
        except FileNotFoundError:
            return True
        except OSError:
            return False  # SQLite reports it

    def _gone(self) -> StoreGone:
        sentence = "was removed, replaced or emptied while it was open; restore it"
        return StoreGone(f"the database {self.path} {sentence}")

    def _give_up(self, connection: Connection | None, batch: list[Write[Any]], error: Exception) -> Connection | None:
        for write in batch:
            write.error = error
        return connection

    def _refuse_impatient(self, batch: list[Write[Any]]) -> list[Write[Any]]:
        """Refuses the writes that do not wait, in this batch and in the queue; returns the others."""
        while (item := self._next_queued()) is not None:
            batch.append(item)
        refused = [write for write in batch if not write.is_patient]
        for write in refused:
            write.error = _refusal(self.trouble)
        self._answer(refused)
        return [write for write in batch if write.is_patient]

    def _next_queued(self) -> Write[Any] | None:
        """The next queued write; None: the queue is empty, or only holds the end mark."""
        try:
            item = self._queue.get_nowait()
        except queue.Empty:
            return None
        if item is None:
            self._queue.put(None)
        return item

    def _set_trouble(self, trouble: str) -> None:
        if trouble == self.trouble:
            return
        if bool(trouble) != bool(self.trouble):
            log.warning("%s", trouble or f"the database {self.path} can be written again")
        self.trouble = trouble
        if self._on_trouble is not None:
            self._loop.call_soon_threadsafe(self._on_trouble)

    def _answer(self, batch: list[Write[Any]]) -> None:
        for write in batch:
            if write.future is None and write.error is not None:
                log.error("a write to %s failed", self.path, exc_info=write.error)
        waiting = [write for write in batch if write.future is not None]
        if waiting and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(resolve, waiting)


def _refusal(trouble: str) -> StoreUnavailable:
    return StoreUnavailable(f"{trouble}; nothing was changed, try again later")
