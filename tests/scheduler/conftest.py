"""A new experiment's database, on disk or in memory."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nni_manager.store.connection import WritingConnection, connect
from nni_manager.store.experiment import experiments
from nni_manager.store.migrate import migrate


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of an experiment ``exp1`` made at time 0."""
    path = tmp_path_factory.mktemp("template") / "nni.sqlite"
    migrate(path, "experiment")
    connection = connect(path)
    experiments.create(connection, id="exp1", config="{}", interpreter="", folder="/work/exp1", now_ms=0)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(template, tmp_path / "nni.sqlite"))


@pytest.fixture(scope="session")
def in_memory(template: Path) -> Callable[[], sqlite3.Connection]:
    """Makes a copy that lives in memory."""

    def make() -> sqlite3.Connection:
        source = sqlite3.connect(template)
        connection = sqlite3.connect(":memory:", isolation_level=None, factory=WritingConnection)
        source.backup(connection)
        source.close()
        return connection

    return make


@pytest.fixture
def connection(in_memory: Callable[[], sqlite3.Connection]) -> Iterator[sqlite3.Connection]:
    connection = in_memory()
    yield connection
    connection.close()
