"""Anneal: the contract, that it searches near the best, and NNI's arguments."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.domain.trial_status import TrialStatus
from nni_manager.tuners.anneal import Anneal
from nni_manager.tuners.contract import Tuner
from nni_manager.tuners.random import Random
from nni_manager.tuners.testing import SPACES, TunerContract, dimension, result
from tests.tuners.learners import SPACE, ended, mean_best

pytestmark = pytest.mark.unit


class TestAnneal(TunerContract):
    def make(self) -> Tuner:
        return Anneal(seed=3)


class TestAnnealWithEveryArgument(TunerContract):
    def make(self) -> Tuner:
        return Anneal(optimize_mode="maximize", parallel_optimize=True, constant_liar_type="mean", seed=3)


def new(space: Any, **arguments: Any) -> Anneal:
    tuner = Anneal(seed=1, **arguments)
    tuner.update_search_space(space)
    return tuner


@pytest.mark.parametrize(("mode", "sign"), [("minimize", 1.0), ("maximize", -1.0)])
def test_it_finds_much_better_trials_than_chance(mode: Any, sign: float) -> None:
    found = mean_best(lambda seed: Anneal(optimize_mode=mode, seed=seed), sign=sign)
    assert found < 0.75 * mean_best(lambda seed: Random(seed=seed))


def test_draws_approach_best_with_more_results() -> None:
    """With n results the neighbourhood is 1 / (1 + n / 10) of the range."""
    tuner = new({"x": dimension("uniform", 0, 1)})
    for number in range(90):
        tuner.learn(result(None, {"x": 0.5}, 1.0 * number))
    drawn = [tuner.propose(number)["x"] for number in range(200)]
    assert 0.45 <= min(drawn) < 0.46 and 0.54 < max(drawn) <= 0.55  # type: ignore[operator,type-var]


def test_the_best_is_left_half_the_time_for_the_next_one() -> None:
    tuner = new({"c": dimension("choice", *range(5))})
    for number in range(1000):
        tuner.learn(result(None, {"c": min(number, 2)}, 1.0 * number))
    drawn = [tuner.propose(number)["c"] for number in range(400)]
    shares = [drawn.count(option) / 400 for option in range(3)]
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.08)


def test_a_branch_without_results_is_drawn_from_the_space() -> None:
    tuner = new(SPACES["nested"])
    for _ in range(10):
        tuner.learn(result(None, {"model": {"_name": "empty"}, "y": 0.5}, 1.0))
    branches = {tuner.propose(number)["model"]["_name"] for number in range(60)}  # type: ignore[index]
    assert branches == {"empty", "sgd", "deep"}


def test_trials_without_result_only_count() -> None:
    tuner, other = new(SPACE), new(SPACE)
    for one in (tuner, other):
        one.learn(result(None, Anneal.propose(one, 900), 1.0))
    for number, status in enumerate((TrialStatus.FAILED, TrialStatus.EARLY_STOPPED, TrialStatus.USER_CANCELED)):
        tuner.learn(ended(number, tuner.propose(number), status))
    assert tuner.state() == {"learned": 1, "failed": 3, "running": 1}
    assert tuner.propose(5) == other.propose(5)


def test_running_trials_count_with_a_liar_alone() -> None:
    def proposed(running: int, **arguments: Any) -> list[object]:
        tuner = new(SPACES["uniform"], **arguments)
        tuner.learn(result(None, {"x": 0.5}, 1.0))
        for number in range(100, 100 + running):
            tuner.propose(number)
        return [tuner.propose(number) for number in range(5)]

    assert proposed(0) == proposed(9)
    assert proposed(0, parallel_optimize=True) != proposed(9, parallel_optimize=True)


@pytest.mark.parametrize(("liar", "lie"), [("min", -3.0), ("max", 9.0), ("mean", 2.0)])
def test_the_lie_is_the_least_the_greatest_or_the_mean_loss(liar: Any, lie: float) -> None:
    tuner = new(SPACES["uniform"])
    for value in (-3.0, 0.0, 9.0):
        tuner.learn(result(None, {"x": 0.5}, value))
    assert tuner.lie(liar) == lie


def test_imported_results_are_used_from_the_first_proposal_on() -> None:
    tuner = new({"x": dimension("uniform", 0, 1)})
    tuner.import_data([{"parameter": {"x": 0.25}, "value": 1.0 + number} for number in range(90)])
    assert tuner.state()["learned"] == 90
    assert all(0.2 <= tuner.propose(number)["x"] <= 0.3 for number in range(20))  # type: ignore[operator]
