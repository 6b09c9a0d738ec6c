"""Brings a database to the newest schema: numbered SQL files and `PRAGMA user_version`."""

from __future__ import annotations

import os
import re
import sqlite3
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from nni_manager.domain.errors import StoreTooNew
from nni_manager.store.connection import classified, connect

#: Where a database file has its `user_version`, in four bytes (SQLite's file format, 1.3).
_VERSION_AT = 60


def migrate(path: Path, kind: str) -> None:
    """Creates or upgrades the database at `path`; `kind` names a folder of `migrations`.

    An existing database is copied to ``<name>.v<version>.bak`` first. Raises StoreTooNew for a schema of the future,
    StoreCorrupt or StoreUnavailable.
    """
    try:
        _migrate(path, kind)
    except sqlite3.DatabaseError as error:
        raise classified(path, error) from error


def upgraded_copy(path: Path, kind: str, folder: Path) -> Path | None:
    """A copy of an older database in `folder`, of the newest schema; None: it has that itself, or a newer one.

    For whoever reads what nobody may write. Raises StoreCorrupt or StoreUnavailable.
    """
    if version_in_file(path) >= len(_steps(kind)):
        return None
    try:
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=1)
        try:
            folder.mkdir(mode=0o700)
            _back_up(connection, folder / path.name)
        finally:
            connection.close()
        _migrate(folder / path.name, kind)
    except sqlite3.DatabaseError as error:
        raise classified(path, error) from error
    return folder / path.name


def _migrate(path: Path, kind: str) -> None:
    connection = connect(path)
    try:
        steps = _steps(kind)
        version = _version(connection)
        if version > len(steps):
            raise StoreTooNew(
                f"{path} has schema {version}, this version knows {len(steps)}: use the version that wrote it"
            )
        if 0 < version < len(steps):
            _back_up(connection, path.with_name(f"{path.name}.v{version}.bak"))
        for number, text in enumerate(steps[version:], start=version + 1):
            connection.executescript(f"BEGIN IMMEDIATE;\n{text}\nPRAGMA user_version={number};\nCOMMIT;")
    finally:
        connection.close()


def _steps(kind: str) -> list[str]:
    folder = resources.files("nni_manager.store.migrations") / kind
    names = sorted(entry.name for entry in folder.iterdir() if re.fullmatch(r"\d{4}_\w+\.sql", entry.name))
    return [(folder / name).read_text(encoding="utf-8") for name in names]


def version_in_file(path: Path) -> int:
    """The version in a file's header, as opening the database would leave files beside it; 0: it cannot be read."""
    try:
        with path.open("rb") as file:
            header = file.read(_VERSION_AT + 4)
    except OSError:
        return 0
    return int.from_bytes(header[_VERSION_AT:], "big")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _back_up(connection: sqlite3.Connection, target: Path) -> None:
    """The copy is its owner's alone, whatever the umask: an index may hold secrets."""
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
    copy = sqlite3.connect(target)
    try:
        connection.backup(copy)
    finally:
        copy.close()
