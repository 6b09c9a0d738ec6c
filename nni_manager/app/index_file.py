"""The index of a data directory as a file: found, made from the folders, or put aside when it cannot be read.

It is made beside its place and put there whole, so that a daemon killed meanwhile leaves nothing or all of it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from nni_manager.app import moved_index
from nni_manager.domain.errors import StoreCorrupt
from nni_manager.store import index, migrate
from nni_manager.store.connection import classified, connect

log = logging.getLogger(__name__)

NAME = "index.sqlite"
#: What SQLite keeps beside a database. Of another one, it would be taken for this one's.
_COMPANIONS = ("-wal", "-shm", "-journal")


def prepare(data_directory: Path) -> Path:
    """A whole index of the newest schema, for its owner. Blocks. Raises StoreError."""
    path = data_directory / NAME
    try:
        return _prepare(path, data_directory)
    except sqlite3.DatabaseError as error:
        raise classified(path, error) from error


def _prepare(path: Path, data_directory: Path) -> Path:
    _make_private(path)
    if not path.exists() or path.stat().st_size == 0:
        _make(path)
    try:
        migrate.migrate(path, "index")
        _check(path)
        _add_found(path)
    except StoreCorrupt as error:
        aside = _put_aside(path)
        log.error(
            "%s; it is %s now, and made again from the folders in %s. An experiment elsewhere is listed again with"
            " `nnictl resume ID --experiment_dir FOLDER`",
            str(error).partition("; restore")[0], aside, data_directory,
        )  # fmt: skip
        _make(path)
    moved_index.follow(path)
    return path


def _make(path: Path) -> None:
    """From the folders beside it."""
    draft = path.with_name(f"{path.name}.new")
    _remove(draft)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))  # what SQLite puts beside it is the same
    migrate.migrate(draft, "index")
    with closing(connect(draft)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for entry in index.find_folders(path.parent):
            index.put(connection, entry)
        connection.execute("COMMIT")
    _remove(path)
    draft.replace(path)


def _make_private(path: Path) -> None:
    """Of an earlier version: who may read it may lock it."""
    for suffix in ("", *_COMPANIONS):
        with suppress(OSError):
            os.chmod(f"{path}{suffix}", 0o600)


def _add_found(path: Path) -> None:
    """What NNI made since: many use both for a while."""
    with closing(connect(path)) as connection:
        known = {entry.id for entry in index.all_entries(connection)}
        connection.execute("BEGIN IMMEDIATE")
        for entry in index.find_nni_folders(path.parent, known):
            index.put(connection, entry)
        connection.execute("COMMIT")


def _check(path: Path) -> None:
    """Raises StoreCorrupt or StoreUnavailable."""
    try:
        with closing(connect(path)) as connection:
            ((found,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.DatabaseError as error:
        raise classified(path, error) from error
    if found != "ok":
        raise StoreCorrupt(f"the database {path} cannot be read ({found})")


def _put_aside(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.corrupt-{time.time_ns()}")
    path.replace(aside)
    for suffix in _COMPANIONS:
        if (companion := Path(f"{path}{suffix}")).exists():
            companion.replace(f"{aside}{suffix}")
    return aside


def _remove(path: Path) -> None:
    for suffix in ("", *_COMPANIONS):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
