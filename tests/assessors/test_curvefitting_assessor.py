"""Curvefitting: what is predicted of a curve, and which trials are stopped."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from nni_manager.assessors.curvefitting import Curvefitting, chance

pytestmark = pytest.mark.unit

TARGET = 50
CURVES: dict[str, Callable[[float], float]] = {
    "power": lambda step: 0.9 - 0.8 * step**-0.7,
    "exponential": lambda step: 0.8 - 0.6 * math.exp(-step / 5),
    "hill": lambda step: 0.7 * step**1.5 / (8**1.5 + step**1.5),
    "flat": lambda step: 0.1,
}


def curve(name: str, steps: int, noise: float = 0.003) -> list[float]:
    source = random.Random(name)
    return [CURVES[name](step) + source.gauss(0, noise) for step in range(1, steps + 1)]


def after(*finals: list[Any], **arguments: Any) -> Curvefitting:
    assessor = Curvefitting(**{"epoch_num": TARGET, **arguments})
    for number, history in enumerate(finals):
        assessor.trial_end(f"done{number}", True, history)
    return assessor


@pytest.mark.parametrize("name", list(CURVES))
@pytest.mark.parametrize("steps", [15, 30])
def test_the_end_of_a_curve_is_predicted(name: str, steps: int) -> None:
    points = list(enumerate(curve(name, steps), 1))
    final = CURVES[name](TARGET)
    assert chance(points, TARGET, final - 0.05) > 0.7
    if steps == 30:
        assert chance(points, TARGET, final + 0.1) < 0.1


def test_flat_curve_is_stopped_and_rising_curve_continues() -> None:
    assessor = after(curve("exponential", TARGET))
    assert not assessor.judge("a", curve("flat", 6))
    assert assessor.judge("b", curve("power", 6)) and assessor.judge("c", curve("exponential", 10))


def test_nothing_is_stopped_before_a_trial_has_succeeded() -> None:
    assessor = Curvefitting(epoch_num=TARGET)
    assert assessor.judge("a", curve("flat", 10))
    assessor.trial_end("b", False, curve("exponential", TARGET))
    assert assessor.judge("a", curve("flat", 10))


def test_only_start_step_and_gaps_are_judged() -> None:
    assessor = after(curve("exponential", TARGET), start_step=8, gap=3)
    judged = [step for step in range(1, TARGET + 5) if not assessor.judge("a", curve("flat", step))]
    assert judged == list(range(8, TARGET, 3))


@pytest.mark.parametrize(("threshold", "goes_on"), [(0.95, False), (0.5, True)])
def test_the_bar_is_a_share_of_the_best(threshold: float, goes_on: bool) -> None:
    assessor = after([1.2], [0.9], threshold=threshold)
    assert assessor.judge("a", curve("exponential", 30)) is goes_on


def test_smaller_values_are_better_when_minimizing() -> None:
    losses = [1 - value for value in curve("exponential", TARGET)]
    assessor = after(losses, optimize_mode="minimize")
    assert assessor.judge("a", losses[:10])
    assert not assessor.judge("b", [1 - value for value in curve("flat", 10)])


@pytest.mark.parametrize("shift", [-5.0, 1000.0])
def test_results_may_be_of_any_sign_and_size(shift: float) -> None:
    """The bar is nearer than the best by a share of its size, also where that is below 0."""
    best = [shift + value for value in curve("exponential", TARGET)]
    assessor = after(best, threshold=0.9999)
    assert assessor.judge("a", best[:12])
    assert not assessor.judge("b", [shift + value for value in curve("flat", 12)])


def test_worsening_curve_is_not_expected_to_improve() -> None:
    assert not after([0.9]).judge("a", [0.5 - 0.01 * step for step in range(10)])


def test_non_numeric_value_counts_as_step_only() -> None:
    assessor = after(curve("exponential", TARGET))
    odd: list[Any] = [math.nan, None, "x", math.inf, {"loss": 1}, -math.inf]
    assert assessor.judge("a", odd), "too few numbers to judge by"
    assert not assessor.judge("b", [*odd, *curve("flat", 6)])
    assert assessor.judge("c", [*odd, *curve("exponential", 12)[6:]])
    assert not assessor.judge("d", [{"default": value, "loss": 9} for value in curve("flat", 6)])


def test_non_numeric_last_value_sets_no_threshold() -> None:
    for last in (math.nan, math.inf, None, "x"):
        assert after([0.9, last], []).judge("a", curve("flat", 10))


ODD = [[0.0] * 10, [1e308, -1e308] * 5, [5e-324] * 9, [1e-307] * 9, [1e-300 * step for step in range(9)], [-1e9] * 9]


@pytest.mark.parametrize("history", ODD)
def test_odd_curves_are_judged_without_an_error(history: list[float]) -> None:
    assert after([0.5], epoch_num=20).judge("a", history) in (True, False)


def test_a_restart_changes_no_judgement() -> None:
    """After one, `trial_end` and `judge` are called again with everything that was recorded."""
    ended = [curve("power", TARGET), curve("flat", 9), curve("hill", TARGET)]
    first, second = after(*ended), after(*ended)
    for step in range(1, 40):
        first.judge("a", curve("flat", step))
    histories = [curve(name, step) for name in CURVES for step in range(1, 40)]
    assert [first.judge("b", one) for one in histories] == [second.judge("b", one) for one in histories]


def test_reported_steps_are_the_places_of_the_curve() -> None:
    assessor = Curvefitting(epoch_num=20, start_step=6)
    assessor.trial_end("good", True, [0.9])
    flat = [0.1, 0.1, 0.1, 0.1]
    assert assessor.judge("a", flat) and assessor.judge("a", flat, [0, 1, 2, 3])
    assert not assessor.judge("a", flat, [4, 8, 12, 16])
    assert assessor.judge("a", flat, [4, 8, 12, 19]), "its last step is not predicted"
