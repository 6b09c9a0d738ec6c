"""The private file of an experiment: its creator's environment variables, and the secrets its config refers to.

It is separate from the database (mode 0600), as databases are copied and sent. Never log its content. All functions
block, and raise StoreCorrupt or StoreUnavailable.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from nni_manager.domain.errors import StoreCorrupt, StoreUnavailable
from nni_manager.platform_kit.owner import is_ours
from nni_manager.platform_kit.secret_texts import PrivateText
from nni_manager.store.connection import classifying
from trial_runner.wire import full_disks

#: Its name, and its journal, which a killed process leaves behind.
FILE, JOURNAL = "private.sqlite", "private.sqlite-journal"
#: Renamed to the file once complete.
DRAFT = "private.sqlite.draft"
#: Every file name that may occur.
FILES = (FILE, JOURNAL, DRAFT, f"{DRAFT}-journal")
_MODE = 0o600
_TABLES = (
    "CREATE TABLE IF NOT EXISTS environment (one INTEGER PRIMARY KEY CHECK (one = 1), variables TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS secrets (reference TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS services (name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT",
)


@dataclass(frozen=True, slots=True)
class Kept:
    """The private data of one experiment."""

    #: The variables that local trials and the tuner run with; None: missing.
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    #: Reference → value.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


def load(path: Path) -> Kept:
    """The private data; empty: the file is missing, or a killed process left it without tables."""
    if not _is_there(path):
        return Kept()
    with _opened(path) as connection:
        if not _tables(connection):
            return Kept()
        row = connection.execute("SELECT variables FROM environment").fetchone()
        values = dict(connection.execute("SELECT reference, value FROM secrets").fetchall())
        return Kept(environment=None if row is None else json.loads(row[0]), secrets=values)


def foreign(path: Path) -> str:
    """Why the file is not read: it or its folder belongs to another user; empty: it is this user's, or missing.

    Its variables select the programs that are started, and anyone who can write in its folder can replace it. Raises
    OSError.
    """
    with suppress(FileNotFoundError):
        for place, owner in ((path, path.lstat().st_uid), (path.parent, path.parent.stat().st_uid)):
            if not is_ours(path.parent, owner):
                return (
                    f"{place} belongs to the user with id {owner}. {path.name} is not read, because its variables would"
                    f" decide which programs run as you (user id {os.geteuid()}): continue with a copy of the folder,"
                    " or have its owner changed to you (`chown -R`)"
                )
    return ""


def replace(path: Path, kept: Kept) -> None:
    """Replaces the file atomically."""
    draft = path.with_name(DRAFT)
    with _said(path):
        for left in FILES[2:]:
            path.with_name(left).unlink(missing_ok=True)
    put(draft, kept.secrets, environment=kept.environment)
    with _said(path):
        path.unlink(missing_ok=True)  # first, as a leftover journal would be applied to the new file
        path.with_name(JOURNAL).unlink(missing_ok=True)
        draft.replace(path)


def put(path: Path, secrets: Mapping[str, str], *, environment: Mapping[str, str] | None = None) -> None:
    """Adds or replaces secrets (reference → value), and the environment if given; other secrets stay."""
    with _writing(path) as connection:
        connection.executemany("INSERT OR REPLACE INTO secrets (reference, value) VALUES (?, ?)", secrets.items())
        if environment is not None:
            connection.execute("INSERT OR REPLACE INTO environment VALUES (1, ?)", (json.dumps(dict(environment)),))


def keep_only(path: Path, references: Collection[str]) -> None:
    """Removes all secrets but these."""
    gone = [(reference,) for reference in load(path).secrets.keys() - set(references)]
    if gone:
        with _writing(path) as connection:
            connection.executemany("DELETE FROM secrets WHERE reference = ?", gone)


class ServiceText(PrivateText):
    """The text that a training service stores in the private file."""

    def __init__(self, path: Path, service: str) -> None:
        super().__init__()
        self._path = path
        self._service = service

    def read(self) -> str:
        if not _is_there(self._path):
            return ""
        with _opened(self._path) as connection:
            if not _tables(connection):
                return ""
            query = "SELECT text FROM services WHERE name = ?"
            return str((connection.execute(query, (self._service,)).fetchone() or ("",))[0])

    def write(self, text: str) -> None:
        if text != self.read():
            with _writing(self._path) as connection:
                connection.execute("INSERT OR REPLACE INTO services VALUES (?, ?)", (self._service, text))


# The file


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


@contextmanager
def _writing(path: Path) -> Iterator[sqlite3.Connection]:
    """A durable transaction; overwritten values are erased from the file (`secure_delete`)."""
    if not _is_there(path):
        with _said(path), suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE))
    with _opened(path) as connection:
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute("BEGIN IMMEDIATE")
        for table in _TABLES:
            connection.execute(table)
        yield connection
        connection.execute("COMMIT")


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with classifying(path), closing(sqlite3.connect(path, timeout=1, isolation_level=None)) as connection:
            yield connection
    except ValueError:
        raise StoreCorrupt(f"{path} cannot be read: its environment is not valid JSON") from None


def _is_there(path: Path) -> bool:
    """Whether the file exists. Its mode is reduced to 0600, as a copy may have a wider one."""
    with _said(path):
        try:
            found = path.lstat()
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(found.st_mode):
            raise StoreCorrupt(f"{path} is not a file; remove it")
        if reason := foreign(path):
            raise StoreCorrupt(reason)
        if found.st_mode & 0o077:
            path.chmod(_MODE)
        return True


@contextmanager
def _said(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be written ({full_disks.reason(error, path)})") from error
