"""Prepares the index file at the start of a daemon: creates, upgrades, and adapts it after a move or copy."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from nni_manager.api import code
from nni_manager.app import identity
from nni_manager.domain.errors import NniManagerError, StoreCorrupt, StoreError
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store import migrate
from nni_manager.store.connection import Connection, classifying, connect, connect_readonly
from nni_manager.store.database import Database
from nni_manager.store.folder import Folder
from nni_manager.store.index import index, reconcile, stored_identity

log = logging.getLogger(__name__)


def follow_move(path: Path) -> None:
    """Record the index's directory; after a move or copy, correct the folders of experiments. Blocks."""
    here = os.path.realpath(path.parent)
    with closing(connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        row = connection.execute("SELECT directory FROM home").fetchone()
        if row is not None and row[0] != here:
            _move(connection, row[0], path.parent)
        connection.execute("DELETE FROM home")
        connection.execute("INSERT INTO home (directory) VALUES (?)", (here,))
        connection.execute("COMMIT")


def _move(connection: Connection, before: str, now: Path) -> None:
    log.warning("this data directory was %s: its experiments are now expected in %s", before, now)
    for id_, folder in connection.execute("SELECT id, folder FROM experiments").fetchall():
        old, new = Path(folder), now / Path(folder).name
        if _lay_in(old, before) and new.is_dir():
            connection.execute("UPDATE experiments SET folder = ? WHERE id = ?", (str(new), id_))
            if old.exists():  # a copied experiment must not start: its original may be running
                _close_copy(connection, id_, Folder(new))
    for id_, folder in connection.execute("SELECT id, folder FROM leftovers").fetchall():
        if _lay_in(Path(folder), before):
            connection.execute("UPDATE leftovers SET folder = ? WHERE id = ?", (str(now / Path(folder).name), id_))


def _close_copy(connection: Connection, id_: str, folder: Folder) -> None:
    """List a copy as stopped, with the results in its folder: the index lacks those of an open experiment."""
    connection.execute(
        "UPDATE experiments SET status = ?, open = 0, view_port = NULL, view_prefix = NULL,"
        " results = CASE results WHEN '' THEN ? ELSE results END WHERE id = ?",
        (ExperimentStatus.STOPPED, _results(folder), id_),
    )


def _results(folder: Folder) -> str:
    try:
        return index.read_folder(folder).results
    except (NniManagerError, OSError, ValueError) as error:
        log.warning("lists will not show the results of %s: %s", folder.path, error)
        return ""


def _lay_in(folder: Path, directory: str) -> bool:
    return os.path.realpath(folder.parent) == directory


#: SQLite's auxiliary files of a database; those of a replaced database would be applied to the new one.
_COMPANIONS = ("-wal", "-shm", "-journal")


def prepare(data_directory: Path) -> Path:
    """Create or upgrade the index, private to its owner, and return its path. Blocks. Raises StoreError."""
    path = data_directory / index.FILE
    with classifying(path):
        return _prepare(path, data_directory)


def _prepare(path: Path, data_directory: Path) -> Path:
    # private, because users that can read it can lock it
    for suffix in ("", *_COMPANIONS):
        with suppress(OSError):
            os.chmod(f"{path}{suffix}", 0o600)
    if not path.exists() or path.stat().st_size == 0:
        _make(path)
    try:
        migrate.migrate(path, "index")
        _check(path)
    except StoreCorrupt as error:
        aside = _put_aside(path)
        log.error(
            "%s; it is now %s, and was rebuilt from the folders in %s. To list an experiment elsewhere again, run"
            " `nnictl resume ID --experiment_dir FOLDER`",
            str(error).partition("; restore")[0],
            aside,
            data_directory,
        )
        _make(path)
    follow_move(path)
    return path


def identity_of(data_directory: Path) -> tuple[str, str]:
    """(name, path) of the data directory from the index; empty if they are missing or unreadable. Blocks."""
    path = data_directory / index.FILE
    with suppress(OSError, StoreError, sqlite3.DatabaseError):
        if path.stat().st_size:
            with closing(connect_readonly(path)) as connection:
                return stored_identity.load(connection)
    return "", ""


def owners(data_directory: Path) -> frozenset[str]:
    """The names of the owners of experiments in a data directory. Blocks."""
    return frozenset(one.owner for one in _originals(data_directory) if one.owner)


def has_open_folder(data_directory: Path) -> bool:
    """Whether an experiment in the data directory was open when its folder was written last. Blocks."""
    return any(one.entry.is_open for one in _originals(data_directory))


def _originals(data_directory: Path) -> Iterator[index.Found]:
    found = map(index.find_folder, index.folders_in(data_directory))
    return (one for one in found if one is not None and not one.is_copy)


def restore(path: Path, connection: Connection | None) -> None:
    """Rebuild the index after it was removed, replaced or damaged while a daemon had it open.

    A file in its place is renamed and kept. `connection`: to the former file, whose content is used if it is readable;
    it is closed. Blocks. Raises OSError or StoreError.
    """
    draft = path.with_name(f"{path.name}.new")
    _remove(draft)
    has_content = connection is not None and _copied(connection, draft)
    if path.exists() and path.stat().st_size:
        log.error("%s was replaced while the daemon ran; the other file is now %s", path, _put_aside(path))
    else:
        log.error("%s was removed while the daemon ran; it will be rebuilt", path)
    if has_content:
        _remove_companions(path)
        draft.replace(path)
    else:
        _make(path, is_daemon_at_work=True)
    follow_move(path)
    _put_identity(path)


def _put_identity(path: Path) -> None:
    """Store the name from its file, because the index may be older."""
    if (name := identity.known(path.parent)) != identity.NOBODY:
        with closing(connect(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            stored_identity.put(connection, name)
            connection.execute("COMMIT")


def _copied(connection: Connection, draft: Path) -> bool:
    """Copy the content of an index to `draft`, and close the connection; return whether it is sound."""
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(draft)) as copy:
            connection.backup(copy)
        _check(draft)
        with closing(connect_readonly(draft)) as copy:
            stored_identity.load(copy)
    except (OSError, StoreError, sqlite3.DatabaseError) as error:
        log.warning("the former content of the index is unreadable (%s); it is rebuilt from the folders", error)
        return False
    finally:
        connection.close()  # before its files are replaced, because SQLite removes a write-ahead log by name
    return True


def _make(path: Path, *, is_daemon_at_work: bool = False) -> None:
    """Makes the index from the folders. Open experiments are left out, unless the daemon that has them open is at work:
    at its start they are listed once the keeper has named its jobs."""
    draft = path.with_name(f"{path.name}.new")
    _remove(draft)
    # SQLite's auxiliary files get the same mode
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    migrate.migrate(draft, "index")
    with closing(connect(draft, is_durable=True)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for entry in index.find_folders(path.parent):
            if is_daemon_at_work or not entry.is_open:
                index.put(connection, entry)
        connection.execute("COMMIT")
    _remove_companions(path)
    draft.replace(path)


def _check(path: Path) -> None:
    """Check the database. Raises StoreCorrupt or StoreUnavailable."""
    with classifying(path), closing(connect(path)) as connection:
        ((found,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
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
    path.unlink(missing_ok=True)
    _remove_companions(path)


def _remove_companions(path: Path) -> None:
    for suffix in _COMPANIONS:
        Path(f"{path}{suffix}").unlink(missing_ok=True)


async def finish_half_done(index_database: Database, data_directory: Path) -> None:
    """Remove incompletely created or deleted experiments; failures are retried at the next start.

    Raises StoreError if the index cannot be read.
    """
    for id_, folder in await index_database.read(index.leftovers):
        try:
            if await asyncio.to_thread(_may_be_removed, folder):
                await _clear(index_database, data_directory, id_, folder)
            else:
                await _list_again(index_database, id_, folder)
        except Exception as error:  # any error, because it must not block the other experiments
            log.warning("%s was created or deleted incompletely and cannot be removed yet: %s", folder.path, error)


def _may_be_removed(folder: Folder) -> bool:
    """Whether the user deleted the experiment, or nothing would be lost: the index may be older than the folder."""
    return folder.is_to_be_deleted or not index.holds_experiment(folder)


async def _clear(index_database: Database, data_directory: Path, id_: str, folder: Folder) -> None:
    findings = await asyncio.to_thread(folder.remove)
    await code.sweep(data_directory)
    for finding in findings:
        log.warning("removing a deleted experiment: %s", finding)
    if not findings:
        await index_database.try_write(lambda c: index.drop_leftover(c, id_))
        log.info("%s was created or deleted incompletely and is now removed", folder.path, extra={"action": "leftover"})


async def _list_again(index_database: Database, id_: str, folder: Folder) -> None:
    """List an experiment that the index has as incomplete although it has trials; the start then reconciles it."""
    log.warning("%s was listed as incomplete, but it has trials: it is listed again", folder.path)
    found = await asyncio.to_thread(index.find_folder, folder)
    entry = None if found is None else reconcile.decide(None, found, is_ours=False, has_jobs=False)

    def put(connection: Connection) -> None:
        index.drop_leftover(connection, id_)
        if entry is not None and folder.path.parent != Path(str(index_database.path)).parent:
            index.put(connection, entry)

    await index_database.try_write(put)
