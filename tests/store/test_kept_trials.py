"""The open trials that a connection keeps: always those that a whole reading would find."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nni_manager.store.connection import connect
from nni_manager.store.experiment import kept_trials, trials
from tests.store.life import add, end, start

pytestmark = pytest.mark.unit

IDS = ("aaaaa", "bbbbb", "ccccc", "ddddd")
STEPS = ("add", "start", "end", "load", "begin", "undo", "commit", "undo part", "other connection")


def _step(connection: sqlite3.Connection, path: Path, what: str, id_: str) -> None:
    known = trials.status(connection, id_)
    match what:
        case "add" if known is None:
            add(connection, id_)
        case "start" if known == "WAITING":
            start(connection, id_)
        case "end" if known == "RUNNING":
            end(connection, id_)
        case "load":
            assert kept_trials.load(connection) == trials.load_open(connection)
        case "begin" if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        case "undo" if connection.in_transaction:
            connection.execute("ROLLBACK")
        case "commit" if connection.in_transaction:
            connection.execute("COMMIT")
        case "undo part":
            connection.execute("SAVEPOINT part")
            connection.execute("UPDATE trials SET wait_sentence = 'undone'")
            kept_trials.load(connection)
            connection.execute("ROLLBACK TO part")
            connection.execute("RELEASE part")
        case "other connection" if not connection.in_transaction:
            with closing(connect(path)) as other:
                other.execute("UPDATE trials SET wait_sentence = wait_sentence || '!'")


@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(IDS)), max_size=60))
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    database=None,
)
def test_kept_trials_equal_a_whole_reading(path: Path, steps: list[tuple[str, str]]) -> None:
    with closing(connect(path)) as connection:
        connection.execute("DELETE FROM attempts")
        connection.execute("DELETE FROM trials")
        for what, id_ in steps:
            _step(connection, path, what, id_)
        assert kept_trials.load(connection) == trials.load_open(connection)
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        assert kept_trials.load(connection) == trials.load_open(connection)


def test_failed_reading_loses_no_trial(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("disk is full")

    with closing(connect(path)) as connection:
        add(connection, "aaaaa")
        kept_trials.load(connection)
        connection.execute("BEGIN IMMEDIATE")
        start(connection, "aaaaa")
        with monkeypatch.context() as patch, pytest.raises(sqlite3.OperationalError):
            patch.setattr(trials, "load_open", fail)
            kept_trials.load(connection)
        connection.execute("ROLLBACK")
        assert kept_trials.load(connection) == trials.load_open(connection)


def test_only_changed_trials_are_read(path: Path) -> None:
    with closing(connect(path)) as connection:
        for number in range(50):
            add(connection, f"t{number:04}")
        before = {trial.id: trial for trial in kept_trials.load(connection)}
        start(connection, "t0007")
        after = {trial.id: trial for trial in kept_trials.load(connection)}
        assert [id_ for id_ in before if before[id_] is not after[id_]] == ["t0007"]
