"""The Pareto set of an experiment: what descriptions and exports have of it, while trials end."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from typing import Any

import pytest

from nni_manager.domain.metrics import default_number
from nni_manager.store.experiment import answers
from nni_manager.store.index import best_results, list_summary
from tests.store.conftest import CONFIG
from tests.store.life import add, end, report, start

pytestmark = pytest.mark.unit

OBJECTIVES: dict[str, Any] = {
    **CONFIG,
    "objectives": {"accuracy": "maximize", "latency": "minimize"},
    "constraints": {"memory": "<= 8"},
}


@pytest.fixture
def two(connection: sqlite3.Connection) -> sqlite3.Connection:
    """An experiment with two objectives and a constraint."""
    connection.execute("UPDATE experiment SET config = ?", (json.dumps(OBJECTIVES),))
    return connection


def finish(connection: sqlite3.Connection, id: str, text: str) -> None:
    add(connection, id, values={"id": id})
    report(connection, start(connection, id), ("final", text, default_number(json.loads(text))))
    end(connection, id)


def ids(connection: sqlite3.Connection) -> list[str]:
    found = best_results.load_pareto_set(connection, OBJECTIVES)
    assert found is not None and found.size == len(found.trials)
    return [trial.trial_id for trial in found.trials]


def result(accuracy: float, latency: float, memory: float = 1) -> str:
    return json.dumps({"accuracy": accuracy, "latency": latency, "memory": memory})


def test_trials_come_into_the_set_and_leave_it_as_trials_end(two: sqlite3.Connection) -> None:
    assert ids(two) == []
    finish(two, "aaaaa", result(0.5, 5, memory=12))
    finish(two, "bbbbb", result(0.9, 5, memory=10))
    assert ids(two) == ["bbbbb"], "the one that violates the constraint least"
    finish(two, "ccccc", result(0.5, 5))
    assert ids(two) == ["ccccc"]
    finish(two, "ddddd", result(0.7, 6))
    finish(two, "eeeee", result(0.4, 6))
    finish(two, "fffff", '{"accuracy": 0.99, "latency": NaN, "memory": 1}')
    assert ids(two) == ["ddddd", "ccccc"]
    assert best_results.pareto_members(two) == ["ddddd", "ccccc"]


def test_a_result_that_is_taken_back_leaves_the_set(two: sqlite3.Connection) -> None:
    finish(two, "aaaaa", result(0.5, 5))
    finish(two, "bbbbb", result(0.9, 1))
    assert ids(two) == ["bbbbb"]
    two.execute("UPDATE trials SET status = 'WAITING', final_data = NULL, end_order = NULL WHERE id = 'bbbbb'")
    assert ids(two) == ["aaaaa"]


def test_the_summary_survives_the_index(two: sqlite3.Connection) -> None:
    finish(two, "aaaaa", result(0.5, 5))
    found = list_summary.parse(list_summary.text_of(two))
    assert found is not None and found == replace(list_summary.load(two, OBJECTIVES, ""), exec_ms=0)
    assert found.best is None and found.pareto_set is not None
    [best] = found.pareto_set.trials
    assert (best.values, best.is_feasible, best.parameters) == (
        {"accuracy": 0.5, "latency": 5.0},
        True,
        {"id": "aaaaa"},
    )


def test_the_summary_that_an_earlier_version_wrote_is_read(connection: sqlite3.Connection) -> None:
    earlier = {
        k: v for k, v in json.loads(list_summary.text_of(connection)).items() if k not in ("objectives", "pareto_set")
    }
    found = list_summary.parse(json.dumps(earlier))
    assert found is not None and found.objectives == {} and found.pareto_set is None


def test_of_one_objective_there_is_a_best(connection: sqlite3.Connection) -> None:
    config = {**OBJECTIVES, "objectives": {"latency": "minimize"}}
    connection.execute("UPDATE experiment SET config = ?", (json.dumps(config),))
    finish(connection, "aaaaa", result(0.5, 5))
    finish(connection, "bbbbb", result(0.5, 4, memory=9))
    found = list_summary.load(connection, config, "")
    assert found.best is not None and (found.best.trial_id, found.best.value) == ("aaaaa", 5.0)


def test_best_is_never_a_result_that_violates_a_constraint(connection: sqlite3.Connection) -> None:
    config = {**OBJECTIVES, "objectives": {"latency": "minimize"}}
    connection.execute("UPDATE experiment SET config = ?", (json.dumps(config),))
    finish(connection, "aaaaa", result(0.5, 4, memory=9))
    found = list_summary.load(connection, config, "")
    assert found.best is None
    assert found.pareto_set is not None and (found.pareto_set.size, found.pareto_set.is_feasible) == (1, False)
    assert list_summary.parse(list_summary.text_of(connection)) == replace(found, exec_ms=0)


def test_an_export_says_which_trials_are_in_the_set(two: sqlite3.Connection) -> None:
    finish(two, "aaaaa", result(0.5, 5))
    finish(two, "bbbbb", result(0.4, 6))
    text = answers.exported(two, with_intermediates=False, pareto_set=best_results.pareto_members(two))
    assert [(one["trialJobId"], one["pareto"]) for one in json.loads(text)] == [("aaaaa", True), ("bbbbb", False)]


def test_an_experiment_without_objectives_has_no_set(connection: sqlite3.Connection) -> None:
    finish(connection, "aaaaa", "0.5")
    assert best_results.load_pareto_set(connection, CONFIG) is None and best_results.pareto_members(connection) is None
    assert "pareto" not in answers.exported(connection, with_intermediates=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (result(1, 2), ""),
        ('{"accuracy": 1, "latency": 2, "memory": NaN, "default": 3}', ""),
        ('{"accuracy": 1, "default": 3}', "its final result has no finite number for the objective latency"),
        (
            '{"accuracy": "1", "latency": -Infinity}',
            "its final result has no finite number for the objective accuracy, latency",
        ),
        ("0.5", "its final result has no finite number for the objective accuracy, latency"),
    ],
)
def test_a_trial_says_which_objective_its_result_lacks(two: sqlite3.Connection, text: str, words: str) -> None:
    finish(two, "aaaaa", text)
    assert json.loads(answers.trial(two, "aaaaa"))["message"] == words
