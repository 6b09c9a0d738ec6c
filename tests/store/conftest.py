"""A database of a new experiment, and short words for what happens in one."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from nni_manager.store.connection import connect
from nni_manager.store.experiment import experiments
from nni_manager.store.migrate import migrate

CONFIG = {"experimentName": "digits", "searchSpace": {}, "trainingService": {"platform": "local"}, "tuner": {}}


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Newest schema, nothing in it."""
    path = tmp_path_factory.mktemp("template") / "nni.sqlite"
    migrate(path, "experiment")
    return path


@pytest.fixture
def path(empty_database: Path, tmp_path: Path) -> Path:
    """The database of an experiment made at time 1000."""
    folder = tmp_path / "exp1"
    (folder / "db").mkdir(parents=True)
    path = folder / "db" / "nni.sqlite"
    shutil.copy(empty_database, path)
    connection = connect(path)
    experiments.create(
        connection,
        id="exp1",
        config=json.dumps(CONFIG),
        interpreter="/usr/bin/python3",
        folder=str(folder),
        now_ms=1000,
    )
    connection.close()
    return path


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(path)
    yield connection
    connection.close()
