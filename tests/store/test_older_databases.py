"""Databases of earlier versions, as these wrote them: `databases_N` holds one experiment and its list in schema N."""

from __future__ import annotations

import sqlite3
from hashlib import sha256
from importlib import resources
from pathlib import Path

import pytest

from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store.connection import connect
from nni_manager.store.experiment import experiments, trial_warnings, trials, unrecorded_trials
from nni_manager.store.folder import Folder
from nni_manager.store.index import index, stored_identity
from nni_manager.store.index.labels import Labels
from nni_manager.store.migrate import migrate, upgraded_copy
from tests.store.life import one

pytestmark = pytest.mark.unit

HERE = Path(__file__).parent
#: Migrations that databases in use have gone through, with the beginning of their SHA-256.
RELEASED = {
    "experiment/0001_initial.sql": "7543eb94f27af7b2",
    "index/0001_initial.sql": "97ff5e08540006dc",
}


def made_then(path: Path, kind: str) -> Path:
    """The database of schema 1 at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript((HERE / "databases_1" / f"{kind}.sql").read_text())
    connection.close()
    return path


def test_applied_migrations_are_unchanged() -> None:
    folder = resources.files("nni_manager.store.migrations")
    for name, digest in RELEASED.items():
        assert sha256((folder / name).read_bytes()).hexdigest().startswith(digest), (
            f"{name} was edited: databases that have this step do not get the change, so put it into a new file"
        )


def test_older_list_of_experiments_is_opened_and_takes_labels(tmp_path: Path) -> None:
    path = made_then(tmp_path / index.FILE, "index")
    migrate(path, "index")
    connection = connect(path)
    (entry,) = index.all_entries(connection)
    assert (entry.id, entry.status, entry.labels) == ("exp1", ExperimentStatus.RUNNING, Labels())
    assert (entry.is_found, entry.note, stored_identity.load(connection)[0]) == (False, "", "")
    stored_identity.put(connection, "0123abcd")
    assert stored_identity.load(connection)[0] == "0123abcd"
    index.set_labels(connection, "exp1", Labels(tags=("kept",)))
    assert index.get(connection, "exp1").labels.tags == ("kept",)
    connection.close()


def test_older_experiment_is_opened_and_accepts_new_data(tmp_path: Path) -> None:
    path = made_then(tmp_path / "nni.sqlite", "experiment")
    migrate(path, "experiment")
    connection = connect(path)
    assert experiments.load(connection).id == "exp1"
    assert one(connection, "SELECT final_value FROM trials WHERE id = ?", "aaaaa") == 0.9
    assert experiments.provenance(connection) is None
    experiments.put_provenance(connection, {"commit": "1234"})
    assert experiments.provenance(connection) == {"commit": "1234"}
    row = experiments.load(connection)
    assert (row.class_direction, row.unusable_results, row.ended_as, row.owner) == ("", None, "", "")
    assert unrecorded_trials.note(connection, tmp_path / "trials") == ()
    trials.note_checkpoint(connection, "aaaaa")
    assert one(connection, "SELECT trial_id FROM checkpoints") == "aaaaa"
    assert trial_warnings.load(connection) == ()
    assert one(connection, "SELECT further_finals FROM trials WHERE id = ?", "aaaaa") == 0
    assert one(connection, "SELECT count(*), count(step) FROM metrics")[1] == 0
    connection.close()


def test_older_experiment_is_listed_and_read_as_it_is(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "exp1")
    path = made_then(folder.database, "experiment")
    entry = index.read_folder(folder)
    assert entry.id == "exp1" and entry.results != ""
    copy = upgraded_copy(path, "experiment", tmp_path / "copy")
    assert copy is not None
    connection = connect(copy)
    assert experiments.provenance(connection) is None
    connection.close()
