"""Connections to a SQLite file, and the driver's errors translated into ours."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from nni_manager.domain.errors import StoreCorrupt, StoreUnavailable
from trial_runner.wire import full_disks
from trial_runner.wire.descriptors import Descriptor

Connection = sqlite3.Connection


class WritingConnection(sqlite3.Connection):
    """A connection for writing. Modules keep what they have read of it by a weak reference."""


#: Seconds that SQLite waits for a lock before it raises.
_BUSY_TIMEOUT_S = 0.25
#: Primary result codes of temporary conditions.
_TRANSIENT = {
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_LOCKED: "is locked by another process",
    sqlite3.SQLITE_FULL: "has no room: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be written: input/output error (is the disk full?)",
    sqlite3.SQLITE_READONLY: "cannot be written: it is read-only",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened for writing",
    sqlite3.SQLITE_PERM: "cannot be written: permission denied",
}
#: Codes of a write that needs another file next to the database.
_MAY_LACK_INODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_LOCKED_OR_FULL = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL)


def connect(path: Path, *, is_durable: bool = False) -> Connection:
    """A connection for writing. WAL with `synchronous=NORMAL`: a crash of the process loses nothing; a power failure
    loses the last commits, which are read again from the outboxes. `is_durable`: a power failure loses nothing."""
    synchronous = "FULL" if is_durable else "NORMAL"
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        factory=WritingConnection,
    )
    return _set(connection, "journal_mode=WAL", f"synchronous={synchronous}", "foreign_keys=ON", "temp_store=MEMORY")


def connect_readonly(path: Path, *, may_change: bool = False) -> Connection:
    """A read-only connection. Raises StoreUnavailable if the file cannot be opened.

    `may_change`: the file may be written while the connection is open, even if it cannot be written now.
    """
    with suppress(OSError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise StoreCorrupt(f"{path} is not a file; restore the database from a backup")
    require_content(path)
    mode = "ro" if may_change or not _cannot_change(path) else "ro&immutable=1"
    with classifying(path):
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode={mode}", uri=True, timeout=5, isolation_level=None, check_same_thread=False
        )
        return _set(connection, "query_only=ON")


def require_content(path: Path) -> None:
    """Raises StoreCorrupt for an empty file without a write-ahead log; accepts every other file, and a missing one."""
    with suppress(OSError):
        if path.stat().st_size == 0 and not _has_log(path):
            raise StoreCorrupt(f"the database {path} is empty (0 bytes); restore it from a backup")


def _cannot_change(path: Path) -> bool:
    """Whether SQLite cannot create its files next to a database, so that it refuses to read it, but needs none."""
    with suppress(OSError):
        return not os.access(path.parent, os.W_OK) and not _has_log(path)
    return False


def _has_log(path: Path) -> bool:
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def _set(connection: Connection, *settings: str) -> Connection:
    """The connection; closed if the database refuses a setting."""
    try:
        for setting in settings:
            connection.execute(f"PRAGMA {setting}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def sync_log(path: Path) -> None:
    """Writes the write-ahead log of a database to the disk, with its name. Blocks. Raises OSError.

    SQLite itself syncs what leaves the log. The database is not opened here, as closing it would release its locks.
    """
    for synced, flags in (
        (path.with_name(f"{path.name}-wal"), os.O_RDONLY),
        (path.parent, os.O_RDONLY | os.O_DIRECTORY),
    ):
        with suppress(FileNotFoundError), Descriptor(os.open(synced, flags | os.O_CLOEXEC)) as descriptor:
            os.fsync(descriptor)


def restore_modes(path: Path) -> None:
    """Applies a writable database's mode to the files next to it: SQLite may have created them while it was
    read-only."""
    for suffix in ("-wal", "-shm"):
        file = path.with_name(path.name + suffix)
        with suppress(OSError):
            if os.access(path, os.W_OK) and not os.access(file, os.W_OK):
                file.chmod(stat.S_IMODE(path.stat().st_mode))


def tidy(path: Path) -> None:
    """Removes the empty write-ahead log that read-only connections leave behind, unless it is in use."""
    log = path.with_name(f"{path.name}-wal")
    with suppress(OSError, sqlite3.Error):
        if log.stat().st_size == 0:
            with closing(sqlite3.connect(path, timeout=0)) as connection:
                connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # the last connection removes it on close


@contextmanager
def classifying(path: Path) -> Iterator[None]:
    """A context in which the driver's errors are raised as translated by `classified`."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise classified(path, error) from error


def classified(path: Path, error: sqlite3.DatabaseError) -> Exception:
    """The driver's error as StoreUnavailable or StoreCorrupt; unchanged: an error in our SQL."""
    if is_transient(error):
        return StoreUnavailable(trouble(path, error))
    if primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreCorrupt(f"the database {path} cannot be read ({error}); restore it from a backup")
    if primary_code(error) == sqlite3.SQLITE_ERROR and str(error).startswith("no such table"):
        return StoreCorrupt(f"the database {path} has lost its tables ({error}); restore it from a backup")
    return error


def trouble(path: Path, error: sqlite3.DatabaseError) -> str:
    """The sentence for a transient error."""
    if primary_code(error) in _MAY_LACK_INODES and (full := full_disks.no_inodes(str(path.parent))):
        return f"the database {path} cannot be written: {full}"
    return f"the database {path} {_TRANSIENT[primary_code(error)]} ({error})"


def primary_code(error: sqlite3.DatabaseError) -> int:
    """SQLite's primary error code, without the extension; 0: none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_transient(error: sqlite3.DatabaseError) -> bool:
    """Whether the condition is temporary."""
    return primary_code(error) in _TRANSIENT


def left_after(connection: Connection | None, error: sqlite3.DatabaseError) -> Connection | None:
    """The connection to use next, rolled back; None: open a fresh one, as a file opened read-only stays read-only."""
    if connection is None:
        return None
    if primary_code(error) in _LOCKED_OR_FULL:
        if connection.in_transaction:
            connection.rollback()
        return connection
    connection.close()
    return None
