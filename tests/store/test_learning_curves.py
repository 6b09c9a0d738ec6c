"""Learning curves by step, across the attempts of a trial."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from nni_manager.domain.metrics import Metric, MetricType
from nni_manager.domain.service import WaitCode
from nni_manager.store.experiment import answers, history, jobs, learning_curves, metrics, trial_columns, trials
from nni_manager.store.experiment.metrics import OutboxPart
from tests.store.life import add, one, start

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def trial(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")


def run(connection: sqlite3.Connection, number: int, *results: tuple[int | None, float]) -> None:
    """The attempt reports these results: (step, value)."""
    if number > 1:
        jobs.close(connection, "aaaaa", number - 1, "PLATFORM")
        trials.next_attempt(connection, "aaaaa", WaitCode.RETRY, "again")
    name = start(connection, "aaaaa", number)
    plain = Metric(type=MetricType.PERIODICAL, data="", value=None, number=0)
    found = tuple(
        replace(plain, data=str(value), value=value, number=line, step=step)
        for line, (step, value) in enumerate(results)
    )
    part = OutboxPart(job_name=name, outbox="outbox/1", start=0, end=10, lines=len(found), metrics=found)
    metrics.store(connection, part, 7)


def curve(connection: sqlite3.Connection) -> list[tuple[int, float]]:
    rows = trial_columns.intermediates_of(connection, [0], data=False)
    assert [row[2] for row in rows] == [7] * len(rows)
    assert [value for _, value, _ in trial_columns.intermediates(connection, "aaaaa")] == [row[3] for row in rows]
    return [(step, value) for _, step, _, value in rows]


def test_results_without_steps_are_counted(connection: sqlite3.Connection) -> None:
    run(connection, 1, (None, 0.1), (None, 0.2))
    assert curve(connection) == [(0, 0.1), (1, 0.2)]
    assert learning_curves.with_steps(connection, ["aaaaa"]) == []
    run(connection, 2, (None, 0.3))
    assert curve(connection) == [(0, 0.3)]


def test_continued_attempt_extends_curve(connection: sqlite3.Connection) -> None:
    run(connection, 1, (0, 0.1), (1, 0.2), (2, 0.3), (3, 0.4))
    run(connection, 2, (2, 0.35), (3, 0.45), (4, 0.5))
    assert curve(connection) == [(0, 0.1), (1, 0.2), (2, 0.35), (3, 0.45), (4, 0.5)]
    assert [row[0] for row in connection.execute("SELECT sequence FROM metrics WHERE attempt = 2")] == [0, 1, 2]
    assert one(connection, "SELECT intermediates FROM trials") == 3
    assert history.intermediates(connection, "aaaaa") == {
        "values": [0.35, 0.45, 0.5],
        "steps": [2, 3, 4],
        "earlier": [[0, 0.1], [1, 0.2]],
    }
    assert answers.curves(connection, ["aaaaa"]) == {"aaaaa": [0.1, 0.2, 0.35, 0.45, 0.5]}


def test_attempt_from_start_drops_earlier_curve(connection: sqlite3.Connection) -> None:
    run(connection, 1, (0, 0.1), (1, 0.2), (2, 0.3))
    run(connection, 2, (0, 0.5))
    assert curve(connection) == [(0, 0.5)]
    run(connection, 3, (None, 0.6), (None, 0.7))
    assert curve(connection) == [(0, 0.6), (1, 0.7)]


def test_attempt_without_results_yet_shows_the_earlier_steps(connection: sqlite3.Connection) -> None:
    run(connection, 1, (0, 0.1), (1, 0.2))
    run(connection, 2)
    assert curve(connection) == [(0, 0.1), (1, 0.2)]


def test_later_result_with_the_same_step_counts(connection: sqlite3.Connection) -> None:
    run(connection, 1, (0, 0.1), (0, 0.2), (5, 0.3), (None, 0.4))
    assert curve(connection) == [(0, 0.2), (3, 0.4), (5, 0.3)]


def test_curves_of_several_trials_are_by_trial(connection: sqlite3.Connection) -> None:
    run(connection, 1, (4, 0.1))
    add(connection, "bbbbb", 1)
    assert [row[:2] for row in trial_columns.intermediates_of(connection, [0, 1], data=True)] == [(0, 4)]
