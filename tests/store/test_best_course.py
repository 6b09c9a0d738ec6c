"""How the best result came about, while trials end and results come late."""

from __future__ import annotations

import json
import sqlite3

import pytest

from nni_manager.store.index import best_results
from tests.store.life import add, end, report, start

pytestmark = pytest.mark.unit


def finish(connection: sqlite3.Connection, id: str, value: float | None) -> None:
    add(connection, id)
    attempt = start(connection, id)
    report(connection, attempt, *([("final", str(value), value)] if value is not None else []))
    end(connection, id)


def course(connection: sqlite3.Connection) -> tuple[float, ...]:
    return best_results.load_course(connection, {}, maximizes=True)


def test_course_follows_trials_that_end(connection: sqlite3.Connection) -> None:
    assert course(connection) == ()
    finish(connection, "aaaaa", 0.5)
    finish(connection, "bbbbb", 0.2)
    assert course(connection) == (0.5, 0.5)
    finish(connection, "ccccc", 0.9)
    assert course(connection) == (0.5, 0.5, 0.9)


def test_late_result_is_in_the_course(connection: sqlite3.Connection) -> None:
    finish(connection, "aaaaa", None)
    finish(connection, "bbbbb", 0.5)
    assert course(connection) == (0.5,)
    connection.execute("UPDATE trials SET final_data = '0.7', final_value = 0.7 WHERE id = 'aaaaa'")
    assert course(connection) == (0.7, 0.7)


def test_result_that_is_taken_back_leaves_the_course(connection: sqlite3.Connection) -> None:
    finish(connection, "aaaaa", 0.5)
    finish(connection, "bbbbb", 0.9)
    assert course(connection) == (0.5, 0.9)
    connection.execute("UPDATE trials SET status = 'WAITING', final_value = NULL, end_order = NULL WHERE id = 'bbbbb'")
    assert course(connection) == (0.5,)


def test_course_skips_results_that_violate_a_constraint(connection: sqlite3.Connection) -> None:
    config = {"objectives": {"acc": "maximize"}, "constraints": {"size": "<= 8"}}
    for id_, acc, size in (("aaaaa", 0.9, 9), ("bbbbb", 0.2, 8), ("ccccc", 0.8, 10), ("ddddd", 0.4, 1)):
        add(connection, id_)
        attempt = start(connection, id_)
        report(connection, attempt, ("final", json.dumps({"acc": acc, "size": size}), None))
        end(connection, id_)
    assert best_results.load_course(connection, config, maximizes=True) == (0.2, 0.4)
    without = {"objectives": config["objectives"]}
    assert best_results.load_course(connection, without, maximizes=True) == (0.9, 0.9, 0.9, 0.9)
