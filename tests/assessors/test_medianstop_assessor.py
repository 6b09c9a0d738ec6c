"""Medianstop: NNI's rule, step by step."""

from __future__ import annotations

import math
from typing import Any

import pytest

from nni_manager.assessors.medianstop import Medianstop

pytestmark = pytest.mark.unit


def after(*histories: list[Any], **arguments: Any) -> Medianstop:
    assessor = Medianstop(**arguments)
    for number, history in enumerate(histories):
        assessor.trial_end(f"done{number}", True, history)
    return assessor


def test_nothing_is_stopped_before_a_trial_has_succeeded() -> None:
    assessor = Medianstop()
    assessor.trial_end("failed", False, [100, 100])
    assert assessor.judge("a", [0.0]) and assessor.judge("a", [0.0, -5.0])


def test_best_value_is_compared_with_averages_at_the_same_step() -> None:
    assessor = after([10, 20, 60])  # averages 10, 15, 30
    assert not assessor.judge("a", [9])
    assert assessor.judge("a", [10])
    assert assessor.judge("a", [16, 1]) and not assessor.judge("a", [14, 1])
    assert not assessor.judge("a", [29, 0, 0]) and assessor.judge("a", [30, 0, 0])


def test_step_that_no_trial_reached_is_not_judged() -> None:
    assert after([10, 20]).judge("a", [0, 0, 0])


def test_trials_that_ended_before_the_step_are_ignored() -> None:
    assessor = after([10], [10], [2, 2])
    assert not assessor.judge("a", [3]) and assessor.judge("a", [3, 3])


@pytest.mark.parametrize(("count", "median"), [(1, 1), (2, 1), (3, 2), (4, 2)])
def test_lower_median_counts_when_maximizing(count: int, median: float) -> None:
    assessor = after(*([float(number)] for number in range(1, count + 1)))
    assert assessor.judge("a", [median]) and not assessor.judge("a", [median - 0.1])


@pytest.mark.parametrize(("count", "median"), [(1, 1), (2, 2), (3, 2), (4, 3)])
def test_upper_median_counts_when_minimizing(count: int, median: float) -> None:
    assessor = after(*([float(number)] for number in range(1, count + 1)), optimize_mode="minimize")
    assert assessor.judge("a", [median]) and not assessor.judge("a", [median + 0.1])


def test_start_step_spares_the_first_steps() -> None:
    assessor = after([10, 10, 10], start_step=2)
    assert assessor.judge("a", [0]) and not assessor.judge("a", [0, 0])


def test_the_default_of_an_object_is_compared() -> None:
    assessor = after([{"default": 10, "loss": 0}])
    assert not assessor.judge("a", [{"default": 9, "loss": 100}]) and assessor.judge("a", [{"default": 11}])


def test_value_that_is_not_a_number_counts_as_a_step_only() -> None:
    assessor = after([math.nan, 10, None, 20], [math.nan])  # averages -, 10, 10, 15
    assert assessor.judge("a", [0])
    assert not assessor.judge("a", [0, math.nan]) and assessor.judge("a", [math.nan, math.nan])
    assert assessor.judge("a", [12, 0, 0]) and not assessor.judge("a", [12, 0, 0, "x"])


def test_infinite_values_are_compared() -> None:
    assessor = after([math.inf, -math.inf], [1.0, 1.0], [2.0, 2.0], optimize_mode="minimize")
    assert not assessor.judge("a", [math.inf]) and assessor.judge("a", [2.0])
    assert assessor.judge("a", [-math.inf, math.inf])


def test_continued_trial_is_compared_at_its_step() -> None:
    assessor = after([10, 20, 60])  # averages 10, 15, 30
    assert not assessor.judge("a", [29], [2]) and assessor.judge("a", [30], [2])
    assert assessor.judge("a", [0], [7])
    assessor.trial_end("sparse", True, [100], [7])
    assert not assessor.judge("a", [0], [7])
