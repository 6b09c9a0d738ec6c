"""One SQLite file: a writer thread that takes functions, and read connections.

A function handed to `write` runs inside a transaction on the writer thread, so nothing can come between its
statements. All functions waiting when the writer wakes share one commit; their callers are answered after it. When the
file cannot be written now (full disk, locked, read-only), the whole batch is tried again until it can, `trouble` says
why, and nobody is answered meanwhile: functions must therefore be repeatable and must not keep what they saw.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

from nni_manager.domain.durations import Durations
from nni_manager.domain.errors import StoreCorrupt, StoreUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")
Connection = sqlite3.Connection

#: Seconds SQLite itself waits for a lock before we say that there is trouble.
_BUSY_TIMEOUT_S = 0.25
#: Waits between tries while the file cannot be written, in seconds; the last one repeats.
_RETRY_WAITS_S = (0.05, 0.1, 0.2, 0.5, 1.0)
#: Most functions of one commit, so that one burst does not hold up the answers of all.
_MAX_BATCH = 256
#: Primary result codes that end by themselves.
_TRANSIENT = {
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_LOCKED: "is locked by another process",
    sqlite3.SQLITE_FULL: "has no room: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be written: input/output error (is the disk full?)",
    sqlite3.SQLITE_READONLY: "cannot be written: it is read-only",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened for writing",
    sqlite3.SQLITE_PERM: "cannot be written: permission denied",
}
_LOCKED_OR_FULL = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL)

#: All commits of this process, to any database.
commits = Durations()

_readers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="store-read")


class _Write(Generic[T]):
    """A function on its way to the writer, and where its answer goes."""

    __slots__ = ("error", "function", "future", "is_patient", "result")

    def __init__(
        self, function: Callable[[Connection], T], future: asyncio.Future[T] | None, *, is_patient: bool = True
    ) -> None:
        self.function = function
        self.future = future
        #: Waits, however long, until the file can be written.
        self.is_patient = is_patient
        self.result: T | None = None
        self.error: BaseException | None = None


class Database:
    """Open for one event loop. The writer thread starts with the first write and ends with `close`."""

    def __init__(self, path: Path, on_trouble: Callable[[], None] | None = None) -> None:
        self.path = path
        #: Why nothing can be written at the moment; empty when all is well.
        self.trouble = ""
        self._on_trouble = on_trouble
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Write[Any] | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._closing = threading.Event()
        self._idle_readers: list[Connection] = []
        #: What was opened for writing; None: nothing yet.
        self._file: os.stat_result | None = None

    @property
    def queued(self) -> int:
        """Writes that wait for the writer."""
        return self._queue.qsize()

    async def write(self, function: Callable[[Connection], T]) -> T:
        """Runs `function` in a transaction; answers after the commit. Its own exceptions come back to the caller."""
        return await self.start_write(function)

    async def try_write(self, function: Callable[[Connection], T]) -> T:
        """The same for somebody who waits for an answer.

        Raises StoreUnavailable, having changed nothing, while the file cannot be written.
        """
        if self.trouble:
            raise _refusal(self.trouble)
        future: asyncio.Future[T] = self._loop.create_future()
        self._submit(_Write(function, future, is_patient=False))
        return await future

    def start_write(self, function: Callable[[Connection], T]) -> asyncio.Future[T]:
        """The same, queued before this returns: writes are carried out in the order they were started."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._submit(_Write(function, future))
        return future

    def post(self, function: Callable[[Connection], object]) -> None:
        """The same without an answer: stored soon, in order with everything else. An exception is logged."""
        self._submit(_Write(function, None))

    async def read(self, function: Callable[[Connection], T]) -> T:
        """Runs `function` on a read-only connection; sees what is committed."""
        return await self._loop.run_in_executor(_readers, self._read, function)

    async def close(self) -> None:
        """Writes what is queued (unless there is trouble), then closes everything. Idempotent."""
        writer, self._writer = self._writer, None
        self._closing.set()
        # the writer last: a connection that may only read leaves the write-ahead log behind
        while self._idle_readers:
            self._idle_readers.pop().close()
        if writer is not None:
            self._queue.put(None)
            await self._loop.run_in_executor(None, writer.join)

    def _submit(self, write: _Write[Any]) -> None:
        if self._closing.is_set():
            raise StoreUnavailable(f"{self.path} is closed")
        if self._writer is None:
            self._writer = threading.Thread(target=self._work, name=f"store-write {self.path}", daemon=True)
            self._writer.start()
        self._queue.put(write)

    def _read(self, function: Callable[[Connection], T]) -> T:
        try:
            connection = self._idle_readers.pop()
        except IndexError:
            connection = connect_readonly(self.path)
        try:
            return self._read_with(connection, function)
        except sqlite3.DatabaseError as error:
            if _code(error) != sqlite3.SQLITE_IOERR:
                raise classified(self.path, error) from error
        # it may be about the files beside the database, which come and go: a fresh connection finds the present ones
        try:
            return self._read_with(connect_readonly(self.path), function)
        except sqlite3.DatabaseError as error:
            raise classified(self.path, error) from error

    def _read_with(self, connection: Connection, function: Callable[[Connection], T]) -> T:
        """A connection that failed is not used again."""
        try:
            found = function(connection)
        except sqlite3.DatabaseError:
            connection.close()
            raise
        except BaseException:
            self._give_back(connection)
            raise
        self._give_back(connection)
        return found

    def _give_back(self, connection: Connection) -> None:
        if self._closing.is_set():
            connection.close()
        else:
            self._idle_readers.append(connection)

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

    def _next_batch(self) -> tuple[list[_Write[Any]], bool]:
        batch: list[_Write[Any]] = []
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

    def _commit_until_done(self, connection: Connection | None, batch: list[_Write[Any]]) -> Connection | None:
        attempt = 0
        while True:
            try:
                if self._is_gone():
                    return self._give_up(connection, batch, self._gone())
                connection = connection or connect(self.path)
                self._file = self._file or os.stat(self.path)
                with commits.measured():
                    _run(self.path, connection, batch)
                self._set_trouble("")
                return connection
            except sqlite3.DatabaseError as error:
                connection = _left_after(connection, error)
                if not _is_transient(error) or (self._closing.is_set() and attempt):
                    return self._give_up(connection, batch, classified(self.path, error))
                self._set_trouble(f"the database {self.path} {_TRANSIENT[_code(error)]} ({error})")
                batch[:] = self._refuse_impatient(batch)  # without any it is tried all the same: the trouble must end
            self._closing.wait(_RETRY_WAITS_S[min(attempt, len(_RETRY_WAITS_S) - 1)])
            attempt += 1

    def _is_gone(self) -> bool:
        """SQLite goes on writing into a file that was removed, where nobody will ever find it."""
        if self._file is None:
            return False
        try:
            return not os.path.samestat(self._file, os.stat(self.path))
        except FileNotFoundError:
            return True
        except OSError:
            return False  # SQLite has the words for it

    def _gone(self) -> StoreCorrupt:
        return StoreCorrupt(f"the database {self.path} was removed or exchanged while it was open; put it back")

    def _give_up(self, connection: Connection | None, batch: list[_Write[Any]], error: Exception) -> Connection | None:
        for write in batch:
            write.error = error
        return connection

    def _refuse_impatient(self, batch: list[_Write[Any]]) -> list[_Write[Any]]:
        """Answers those that will not wait, also behind this batch; answers the others."""
        while (item := self._next_queued()) is not None:
            batch.append(item)
        refused = [write for write in batch if not write.is_patient]
        for write in refused:
            write.error = _refusal(self.trouble)
        self._answer(refused)
        return [write for write in batch if write.is_patient]

    def _next_queued(self) -> _Write[Any] | None:
        """None when there is no other, or only the word that it was the last one."""
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

    def _answer(self, batch: list[_Write[Any]]) -> None:
        for write in batch:
            if write.future is None and write.error is not None:
                log.error("a write to %s failed", self.path, exc_info=write.error)
        waiting = [write for write in batch if write.future is not None]
        if waiting and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_resolve, waiting)


def connect(path: Path) -> Connection:
    """A connection for writing. WAL with `synchronous=NORMAL`: a crash of ours loses nothing, power loss the last
    commits, which outboxes bring back."""
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def connect_readonly(path: Path) -> Connection:
    """A connection that cannot write. Raises StoreUnavailable when the file cannot be opened."""
    try:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=ro", uri=True, timeout=5, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA query_only=ON")
    except sqlite3.DatabaseError as error:
        raise classified(path, error) from error
    return connection


def _run(path: Path, connection: Connection, batch: list[_Write[Any]]) -> None:
    """One transaction. A function that fails on its own account is undone alone."""
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


def _attempt(path: Path, connection: Connection, write: _Write[Any]) -> bool:
    """Whether the function did its work; why not, it keeps. Raises what makes the whole batch fail for now."""
    write.result = write.error = None
    try:
        write.result = write.function(connection)
    except Exception as error:
        if isinstance(error, sqlite3.DatabaseError) and _is_transient(error):
            raise
        write.error = classified(path, error) if isinstance(error, sqlite3.DatabaseError) else error
        return False
    return True


def _left_after(connection: Connection | None, error: sqlite3.DatabaseError) -> Connection | None:
    """The connection to go on with. After most errors a fresh one: a file opened read-only stays read-only for ever."""
    if connection is None:
        return None
    if _code(error) in _LOCKED_OR_FULL:
        if connection.in_transaction:
            connection.rollback()
        return connection
    connection.close()
    return None


def _resolve(batch: list[_Write[Any]]) -> None:
    for write in batch:
        assert write.future is not None
        if write.future.done():
            continue
        if write.error is not None:
            write.future.set_exception(write.error)
        else:
            write.future.set_result(write.result)


def _refusal(trouble: str) -> StoreUnavailable:
    return StoreUnavailable(f"{trouble}; nothing was changed, try again later")


def classified(path: Path, error: sqlite3.DatabaseError) -> Exception:
    """The error of the driver as one of ours, or itself when it is a fault in our SQL."""
    if _is_transient(error):
        return StoreUnavailable(f"the database {path} {_TRANSIENT[_code(error)]} ({error})")
    if _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreCorrupt(f"the database {path} cannot be read ({error}); restore it from a backup")
    return error


def _code(error: sqlite3.DatabaseError) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_transient(error: sqlite3.DatabaseError) -> bool:
    return _code(error) in _TRANSIENT
