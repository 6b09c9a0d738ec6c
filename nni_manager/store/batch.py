"""Writes that share a transaction: each on its way to the writer, and where its answer goes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from nni_manager.store.connection import Connection, classified, is_transient

T = TypeVar("T")


class Write(Generic[T]):
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


def run(path: Path, connection: Connection, batch: list[Write[Any]]) -> None:
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


def _attempt(path: Path, connection: Connection, write: Write[Any]) -> bool:
    """Whether the function did its work; why not, it keeps. Raises what makes the whole batch fail for now."""
    write.result = write.error = None
    try:
        write.result = write.function(connection)
    except Exception as error:
        if isinstance(error, sqlite3.DatabaseError) and is_transient(error):
            raise
        write.error = classified(path, error) if isinstance(error, sqlite3.DatabaseError) else error
        return False
    return True


def resolve(batch: list[Write[Any]]) -> None:
    """Answers those who wait; on their event loop."""
    for write in batch:
        assert write.future is not None
        if write.future.done():
            continue
        if write.error is not None:
            write.future.set_exception(write.error)
        else:
            write.future.set_result(write.result)
