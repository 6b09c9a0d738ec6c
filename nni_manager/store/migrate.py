"""Brings a database to the newest schema: numbered SQL files, `PRAGMA user_version` and `PRAGMA application_id`."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path

from nni_manager.domain.errors import SchemaRefused
from nni_manager.store.connection import classifying, connect, connect_readonly

#: Marks our databases, "NNIM" in ASCII. Databases from before the first release have only a version.
_APPLICATION_ID = 0x4E4E494D
#: Offsets of `user_version` and `application_id` in a database file, four bytes each (SQLite's file format, 1.3).
_VERSION_AT, _APPLICATION_AT = 60, 68


def migrate(path: Path, kind: str) -> None:
    """Creates or upgrades the database at `path`; `kind`: a folder of `migrations`. Blocks.

    An existing database is copied to ``<name>.v<version>.bak`` first. Raises SchemaRefused, StoreCorrupt or
    StoreUnavailable.
    """
    with classifying(path):
        _migrate(path, kind)


def upgraded_copy(path: Path, kind: str, folder: Path) -> Path | None:
    """A copy of an older database in `folder`, upgraded, for reading; None: the database has the newest schema.

    Raises SchemaRefused, StoreCorrupt or StoreUnavailable.
    """
    newest, version = len(_steps(kind)), _version_in_file(path)
    _require_known(path, version, newest)
    if version == newest:
        return None
    with classifying(path):
        with closing(connect_readonly(path)) as connection:
            folder.mkdir(mode=0o700)
            _back_up(connection, folder / path.name)
        _migrate(folder / path.name, kind)
    return folder / path.name


def refuse_newer(path: Path, kind: str) -> None:
    """Raises SchemaRefused for a database of a newer version; accepts every other file. Reads the header only."""
    version, application_id = _header(path)
    if application_id == _APPLICATION_ID:
        _require_known(path, version, len(_steps(kind)))


def require_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Raises SchemaRefused for a database from before the first release; accepts one without any schema."""
    if _pragma(connection, "user_version"):
        _require_mark(path, _pragma(connection, "application_id"))


def _migrate(path: Path, kind: str) -> None:
    with closing(connect(path)) as connection:
        require_ours(connection, path)
        newest, version = len(_steps(kind)), _pragma(connection, "user_version")
        _require_known(path, version, newest)
        if 0 < version < newest:
            _back_up(connection, path.with_name(f"{path.name}.v{version}.bak"))
        lay_out(connection, kind)


def lay_out(connection: sqlite3.Connection, kind: str) -> None:
    """Creates or upgrades the tables of a database, which may be one in memory."""
    version = _pragma(connection, "user_version")
    for number, text in enumerate(_steps(kind)[version:], start=version + 1):
        marks = f"PRAGMA application_id={_APPLICATION_ID};\nPRAGMA user_version={number};"
        connection.executescript(f"BEGIN IMMEDIATE;\n{text}\n{marks}\nCOMMIT;")


def _require_mark(path: Path, application_id: int) -> None:
    if application_id != _APPLICATION_ID:
        raise SchemaRefused(
            f"{path} was written before the first release, and this version cannot read it: use the version that"
            " wrote it, or move it away and start again"
        )


def _require_known(path: Path, version: int, newest: int) -> None:
    if version > newest:
        raise SchemaRefused(f"{path} has schema {version}, this version knows {newest}: use the version that wrote it")


def _steps(kind: str) -> list[str]:
    folder = resources.files("nni_manager.store.migrations") / kind
    names = sorted(entry.name for entry in folder.iterdir() if re.fullmatch(r"\d{4}_\w+\.sql", entry.name))
    return [(folder / name).read_text(encoding="utf-8") for name in names]


def _version_in_file(path: Path) -> int:
    """The schema; 0: none, or unreadable. Raises SchemaRefused."""
    version, application_id = _header(path)
    if version:
        _require_mark(path, application_id)
    return version


def _header(path: Path) -> tuple[int, int]:
    """`user_version` and `application_id`, read without SQLite, which would leave files next to the database; 0: none,
    or unreadable."""
    try:
        with path.open("rb") as file:
            header = file.read(_APPLICATION_AT + 4)
    except OSError:
        return 0, 0
    return int.from_bytes(header[_VERSION_AT : _VERSION_AT + 4], "big"), int.from_bytes(header[_APPLICATION_AT:], "big")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _back_up(connection: sqlite3.Connection, target: Path) -> None:
    """Copies a database into a file of mode 0600, with any umask: an index may contain secrets."""
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
    with closing(sqlite3.connect(target)) as copy:
        connection.backup(copy)
