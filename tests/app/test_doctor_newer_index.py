"""The doctor on a data directory that a newer version has used."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nni_manager.app.doctor import data_directory
from nni_manager.app.doctor.finding import CheckOutcome
from nni_manager.store import migrate
from nni_manager.store.index import index

pytestmark = pytest.mark.unit


def test_newer_index_is_a_failure(tmp_path: Path) -> None:
    migrate.migrate(tmp_path / index.FILE, "index")
    assert _failures(tmp_path) == []
    with closing(sqlite3.connect(tmp_path / index.FILE)) as connection:
        connection.execute("PRAGMA user_version = 99")
    (sentence,) = _failures(tmp_path)
    assert f"{tmp_path / index.FILE} has schema 99" in sentence and "use the version that wrote it" in sentence


def _failures(path: Path) -> list[str]:
    found = [one for one in data_directory.look(path, 1) if one.verdict is CheckOutcome.FAIL]
    return [f"{one.sentence} {one.advice}" for one in found if "schema" in one.sentence]
