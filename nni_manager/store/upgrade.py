"""An experiment's database as this version has it. In databases of earlier versions the caller's environment and the
secrets lay, too: they are moved to the private file, and nothing of them stays in the database or in copies beside it.

To be repeated after a crash: the old schema is left only when all of that is done.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from nni_manager.domain.errors import StoreCorrupt, StoreUnavailable
from nni_manager.store import private
from nni_manager.store.connection import classified, connect
from nni_manager.store.folder import Folder
from nni_manager.store.migrate import migrate, version_in_file
from nni_manager.store.private import Kept

#: The first schema without them.
_APART_SINCE = 11
#: The first schema with secrets.
_SECRETS_SINCE = 6
#: Where the environment was, when it has been moved. No version takes it for an environment.
_MOVED = ""


def upgrade(folder: Folder) -> None:
    """Creates or upgrades the experiment's database. Blocks. Raises StoreTooNew, StoreCorrupt or StoreUnavailable."""
    database = folder.database
    if database.exists():
        _move_out(database, folder.private)
    migrate(database, "experiment")


def kept(connection: sqlite3.Connection, folder: Folder) -> Kept:
    """What is kept of an experiment whose database may be of an earlier version, as nobody could write it."""
    found = _in_database(connection) if _holds_them(connection) else Kept()
    return found if found.environment is not None else private.load(folder.private)


def holds_secrets(folder: Folder) -> bool:
    """Whether an experiment's database is of an earlier version, and was not upgraded yet; False where nobody can
    say."""
    try:
        return 0 < version_in_file(folder.database) < _APART_SINCE
    except (OSError, StoreCorrupt):
        return False


def _move_out(database: Path, target: Path) -> None:
    with _opened(database) as connection:
        if not _holds_them(connection):
            return
        found = _in_database(connection)
        if found.environment is not None:
            private.replace(target, found)
        _scrub(connection, database)
    for copy in database.parent.glob(f"{database.name}.v*.bak"):
        with _opened(copy) as connection:
            if _holds_them(connection):  # one that was begun by a killed process is empty
                _scrub(connection, copy)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(connect(path)) as connection:
            yield connection
    except sqlite3.DatabaseError as error:
        raise classified(path, error) from error


def _holds_them(connection: sqlite3.Connection) -> bool:
    return 0 < _version(connection) < _APART_SINCE


def _in_database(connection: sqlite3.Connection) -> Kept:
    row = connection.execute("SELECT environment FROM experiment").fetchone()
    if row is None or row[0] == _MOVED:
        return Kept()
    secrets = (
        "SELECT reference, value FROM secrets" if _version(connection) >= _SECRETS_SINCE else "SELECT 0, 0 WHERE 0"
    )
    return Kept(environment=json.loads(row[0]), secrets=dict(connection.execute(secrets).fetchall()))


def _scrub(connection: sqlite3.Connection, path: Path) -> None:
    """Removes them from a database, what was overwritten earlier included, and from its write-ahead log."""
    connection.execute("PRAGMA secure_delete=ON")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE experiment SET environment = ?", (_MOVED,))
    if _version(connection) >= _SECRETS_SINCE:
        connection.execute("DELETE FROM secrets")
    connection.execute("COMMIT")
    connection.execute("VACUUM")
    (is_busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if is_busy:
        raise StoreUnavailable(f"the database {path} is read by another process, and secrets must leave it; end that")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
