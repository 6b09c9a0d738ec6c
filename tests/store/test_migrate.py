"""Schemas: created, upgraded with a backup, refused when they are newer or from before the first release."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from nni_manager.domain.errors import SchemaRefused, StoreCorrupt, StoreUnavailable
from nni_manager.store import migrate
from nni_manager.store.connection import connect
from nni_manager.store.folder import Folder
from nni_manager.store.index import index

pytestmark = pytest.mark.unit

FIRST = "CREATE TABLE things (name TEXT); INSERT INTO things VALUES ('old');"
SECOND = "ALTER TABLE things ADD COLUMN size INTEGER NOT NULL DEFAULT 7;"

#: Puts these migrations in place of ours.
Use = Callable[..., None]


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Use:
    folder = tmp_path / "migrations"
    (folder / "things").mkdir(parents=True)
    monkeypatch.setattr(migrate.resources, "files", lambda _: folder)

    def put(*texts: str) -> None:
        for number, text in enumerate(texts, start=1):
            (folder / "things" / f"{number:04}_step.sql").write_text(text)

    (folder / "things" / "notes.txt").write_text("no migration")
    return put


def read(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize("kind", ["experiment", "index"])
def test_a_new_database_gets_the_newest_schema_and_no_backup(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "new.sqlite"
    migrate.migrate(path, kind)
    migrate.migrate(path, kind)
    newest = len(list((resources.files("nni_manager.store.migrations") / kind).iterdir()))
    assert read(path, "PRAGMA user_version") == [(newest,)]
    assert read(path, "PRAGMA journal_mode") == [("wal",)]
    assert not list(tmp_path.glob("*.bak"))


def test_an_upgrade_keeps_the_data_and_a_backup(tmp_path: Path, use: Use) -> None:
    path = tmp_path / "things.sqlite"
    use(FIRST)
    migrate.migrate(path, "things")
    use(FIRST, SECOND)
    migrate.migrate(path, "things")
    assert read(path, "SELECT name, size FROM things") == [("old", 7)]
    assert read(path, "PRAGMA user_version") == [(2,)]
    backup = tmp_path / "things.sqlite.v1.bak"
    assert read(backup, "SELECT * FROM things") == [("old",)]
    assert read(backup, "PRAGMA user_version") == [(1,)]
    assert backup.stat().st_mode & 0o777 == 0o600, "an index may hold secrets"


def test_an_upgrade_that_fails_changes_nothing(tmp_path: Path, use: Use) -> None:
    path = tmp_path / "things.sqlite"
    use(FIRST)
    migrate.migrate(path, "things")
    use(FIRST, SECOND + "INSERT INTO nowhere VALUES (1);")
    with pytest.raises(StoreCorrupt, match="no such table"):
        migrate.migrate(path, "things")
    assert read(path, "SELECT * FROM things") == [("old",)]
    assert read(path, "PRAGMA user_version") == [(1,)]


def test_a_schema_of_the_future_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "nni.sqlite"
    connection = connect(path)
    connection.execute(f"PRAGMA application_id={migrate._APPLICATION_ID}")
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(SchemaRefused, match=r"has schema 99, this version knows \d+: use the version that wrote it"):
        migrate.migrate(path, "experiment")
    with pytest.raises(SchemaRefused, match="has schema 99"):
        migrate.refuse_newer(path, "experiment")
    with pytest.raises(SchemaRefused, match="has schema 99"):  # it would be read by queries of another schema
        migrate.upgraded_copy(path, "experiment", tmp_path / "copy")
    assert read(path, "SELECT count(*) FROM sqlite_master") == [(0,)]


def test_only_own_databases_count_as_newer(tmp_path: Path) -> None:
    path = tmp_path / "nni.sqlite"
    migrate.refuse_newer(path, "experiment")
    path.write_text("something else " * 100)
    migrate.refuse_newer(path, "experiment")


def test_invalid_database_file_raises_store_error(tmp_path: Path) -> None:
    path = tmp_path / "nni.sqlite"
    path.write_text("something else " * 100)
    with pytest.raises(StoreCorrupt, match="restore it from a backup"):
        migrate.migrate(path, "experiment")


def test_a_locked_or_missing_place_is_one_of_our_errors(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        migrate.migrate(tmp_path / "nowhere" / "nni.sqlite", "experiment")


def test_prerelease_database_is_refused_and_unchanged(path: Path) -> None:
    connection = connect(path)
    connection.execute("PRAGMA application_id=0")
    connection.close()
    before = path.read_bytes()
    for look in (
        lambda: migrate.migrate(path, "experiment"),
        lambda: migrate.upgraded_copy(path, "experiment", path.parent / "copy"),
        lambda: index.read_folder(Folder(path.parent.parent)),
    ):
        with pytest.raises(SchemaRefused, match="cannot read it: use the version that wrote it, or move it away"):
            look()
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*.bak"))


def test_older_database_is_read_from_an_upgraded_copy(tmp_path: Path, use: Use) -> None:
    path, copy = tmp_path / "things.sqlite", tmp_path / "copy"
    use(FIRST)
    migrate.migrate(path, "things")
    assert migrate.upgraded_copy(path, "things", copy) is None
    use(FIRST, SECOND)
    upgraded = migrate.upgraded_copy(path, "things", copy)
    assert upgraded is not None and read(upgraded, "SELECT name, size FROM things") == [("old", 7)]
    assert read(path, "SELECT * FROM things") == [("old",)]
