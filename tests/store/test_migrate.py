"""Schemas: made, upgraded with a backup, refused when they come from the future."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from nni_manager.domain.errors import StoreCorrupt, StoreTooNew, StoreUnavailable
from nni_manager.domain.experiment import ExperimentStatus, HoldCode
from nni_manager.store import migrate
from nni_manager.store.connection import connect
from nni_manager.store.experiment import answers, experiments, history, jobs, runners, trials
from nni_manager.store.experiment.answers import Page

pytestmark = pytest.mark.unit

OLD = Path(__file__).with_name("old_databases")
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
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        migrate.migrate(path, "things")
    assert read(path, "SELECT * FROM things") == [("old",)]
    assert read(path, "PRAGMA user_version") == [(1,)]


def test_a_schema_of_the_future_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "nni.sqlite"
    connection = connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreTooNew, match=r"has schema 99, this version knows \d+: use the version that wrote it"):
        migrate.migrate(path, "experiment")
    assert read(path, "SELECT count(*) FROM sqlite_master") == [(0,)]


def test_a_file_that_is_no_database_is_one_of_our_errors(tmp_path: Path) -> None:
    path = tmp_path / "nni.sqlite"
    path.write_text("something else " * 100)
    with pytest.raises(StoreCorrupt, match="restore it from a backup"):
        migrate.migrate(path, "experiment")


def test_a_locked_or_missing_place_is_one_of_our_errors(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        migrate.migrate(tmp_path / "nowhere" / "nni.sqlite", "experiment")


@pytest.mark.parametrize("name", sorted(path.name for path in OLD.glob("*.sqlite")))
def test_databases_of_old_releases_are_upgraded_and_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "nni.sqlite"
    shutil.copy(OLD / name, path)
    migrate.migrate(path, "experiment")
    connection = connect(path)
    row = experiments.load(connection)
    assert (row.id, row.status, row.next_sequence_id, row.ended_trials) == ("old", ExperimentStatus.RUNNING, 4, 2)
    assert row.hold is not None and row.hold.code is HoldCode.TUNER_RAISED
    assert [trial.id for trial in trials.load_open(connection)] == ["runs1", "wait1"]
    listed = json.loads(answers.trials(connection, status=None, order="sequence", page=Page(limit=9, offset=0)))
    assert [(t["id"], t["status"], t["finalValue"]) for t in listed["trials"]] == [
        ("good1", "SUCCEEDED", 0.75),
        ("fail1", "FAILED", None),
        ("runs1", "RUNNING", None),
        ("wait1", "WAITING", None),
    ]
    assert [item["value"] for item in history.ended(connection, after=0, intermediates=True)] == [
        {"default": 0.75},
        None,
    ]
    assert history.intermediates(connection, "runs1") == [0.5]
    assert [handle.job_name for handle in jobs.undecided(connection, "local")] == ["nni_exp_old_trial_runs1"]
    connection.close()


@pytest.mark.parametrize(("name", "runner"), [("0001", ("", "")), ("0002", ("0.6.0", "push"))])
def test_runners_of_old_releases(tmp_path: Path, name: str, runner: tuple[str, str]) -> None:
    path = tmp_path / "nni.sqlite"
    shutil.copy(OLD / f"{name}.sqlite", path)
    migrate.migrate(path, "experiment")
    connection = connect(path)
    (job,) = [trial.job for trial in trials.load_open(connection) if trial.job is not None]
    side = runners.find(connection, "runs1", 1)
    assert (side.runner_version, job.channel) == runner
    assert (job.runner_exit, job.runner_exit_ms, job.final_seen_ms) == (None, None, None)
    runners.greet(connection, side.job_name, version="0.6.1", channel="pull")
    assert runners.of_trials(connection, ["runs1", "good1"]) == {"runs1": ("0.6.1", "pull")}
    connection.close()


def test_containers_come_to_attempts_of_old_releases(tmp_path: Path) -> None:
    path = tmp_path / "nni.sqlite"
    shutil.copy(OLD / "0003.sqlite", path)
    migrate.migrate(path, "experiment")
    connection = connect(path)
    side = runners.find(connection, "runs1", 1)
    assert (side.container, jobs.offsets(connection, side.job_name)) == ("", {"outbox/main.jsonl": 10})
    for container in ("a" * 16, "b" * 16):
        runners.greet(connection, side.job_name, version="0.6.1", channel="push", container=container, outboxes={})
    assert jobs.offsets(connection, side.job_name) == {"outbox/main.jsonl": 0}
    epochs = connection.execute(
        "SELECT m.epoch, a.epoch FROM metrics m JOIN attempts a USING (trial_id) WHERE m.trial_id = 'runs1'"
    ).fetchall()
    assert epochs == [(0, 1)]
    connection.close()


@pytest.mark.parametrize(
    ("word", "exit_code", "native", "cause"),
    [
        ("OOMKilled", 137, "OOMKilled", "OUT_OF_MEMORY"),
        ("SUBMIT_REJECTED", None, "", "SUBMIT_REJECTED"),
        ("VERSION_MISMATCH", None, "", "VERSION_MISMATCH"),
        ("VERSION_MISMATCH", 1, "VERSION_MISMATCH", ""),
        ("RUNNER_FAILED", None, "RUNNER_FAILED", ""),
        ("Evicted", None, "Evicted", ""),
        ("", 1, "", ""),
    ],
)
def test_causes_come_to_attempts_of_old_releases(
    tmp_path: Path, word: str, exit_code: int | None, native: str, cause: str
) -> None:
    path = tmp_path / "nni.sqlite"
    shutil.copy(OLD / "0008.sqlite", path)
    connection = connect(path)
    connection.execute("UPDATE attempts SET reason = ?, exit_code = ?", (word, exit_code))
    connection.close()
    migrate.migrate(path, "experiment")
    assert set(read(path, "SELECT native_reason, cause FROM attempts")) == {(native, cause)}


def test_there_is_a_database_of_every_released_schema() -> None:
    released = len(list((resources.files("nni_manager.store.migrations") / "experiment").glob("*.sql")))
    assert {path.stem for path in OLD.glob("*.sqlite")} == {f"{number:04}" for number in range(1, released + 1)}
    assert all(path.stat().st_size < 150_000 for path in OLD.glob("*.sqlite"))
