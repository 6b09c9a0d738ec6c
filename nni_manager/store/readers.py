"""Read-only connections to one database: kept between reads, and released while its writer reconnects."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from nni_manager.store.connection import Connection, classified, classifying, connect_readonly, primary_code

T = TypeVar("T")

#: Maximum seconds that the writer waits for current reads, and a read for the writer.
_PAUSE_S = 0.5


class Readers:
    """Used from any thread. `may_change`: as in `connect_readonly`."""

    def __init__(self, path: Path, *, may_change: bool) -> None:
        self._path = path
        self._may_change = may_change
        self._idle: list[Connection] = []
        #: Connections in use.
        self._used = 0
        #: Grows when connections are dropped; those of an earlier age are closed after use.
        self._age = 0
        self._is_closed = False
        self._is_paused = False
        self._change = threading.Condition()

    def read(self, function: Callable[[Connection], T]) -> T:
        """The function's result. Raises its exceptions; the driver's errors as translated by `classified`."""
        try:
            with self._connection() as connection:
                return function(connection)
        except sqlite3.DatabaseError as error:
            if primary_code(error) != sqlite3.SQLITE_IOERR:
                raise classified(self._path, error) from error
        # -wal or -shm may have been replaced: a new connection opens the present files
        with classifying(self._path), self._connection(is_fresh=True) as connection:
            return function(connection)

    @contextmanager
    def released(self) -> Iterator[None]:
        """A context without open readers, except those that take longer than `_PAUSE_S`.

        A reader that was opened while the files were read-only keeps the index of the write-ahead log read-only for
        every connection of this process.
        """
        with self._change:
            self._is_paused = True
            self._drop()
            self._change.wait_for(lambda: not self._used, _PAUSE_S)
        try:
            yield
        finally:
            with self._change:
                self._is_paused = False
                self._change.notify_all()

    def close(self) -> None:
        """Closes all idle connections, and each of the others after its use."""
        with self._change:
            self._is_closed = True
            self._drop()

    def _drop(self) -> None:
        self._age += 1
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _connection(self, *, is_fresh: bool = False) -> Iterator[Connection]:
        """A connection, kept afterwards unless the driver fails in the context."""
        connection, age = self._take(is_fresh=is_fresh)
        try:
            connection = connection or connect_readonly(self._path, may_change=self._may_change)
            yield connection
        except sqlite3.DatabaseError:
            age = -1
            raise
        finally:
            self._give_back(connection, age)

    def _take(self, *, is_fresh: bool) -> tuple[Connection | None, int]:
        with self._change:
            self._change.wait_for(lambda: not self._is_paused, _PAUSE_S)
            self._used += 1
            return self._idle.pop() if self._idle and not is_fresh else None, self._age

    def _give_back(self, connection: Connection | None, age: int) -> None:
        with self._change:
            if connection is not None:
                if age == self._age and not self._is_closed:
                    self._idle.append(connection)
                else:
                    connection.close()
            self._used -= 1
            self._change.notify_all()
