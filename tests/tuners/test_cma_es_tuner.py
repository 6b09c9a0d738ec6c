"""CmaEs: the contract, generations, and what TPE draws for it."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.domain.trial_status import TrialStatus
from nni_manager.tuners.cma_es import CmaEs
from nni_manager.tuners.contract import Tuner
from nni_manager.tuners.random import Random
from nni_manager.tuners.testing import SPACES, Space, TunerContract, dimension, result
from tests.tuners.learners import SPACE, ended, mean_best

pytestmark = pytest.mark.unit

PLANE: dict[str, Any] = {"x": dimension("uniform", 0, 1), "y": dimension("uniform", 0, 1)}


class TestCmaEs(TunerContract):
    def make(self) -> Tuner:
        return CmaEs(seed=3, population_size=4)

    def spaces(self) -> dict[str, Space]:
        numbers = {"a": SPACES["quniform"]["x"], "b": SPACES["qlognormal"]["x"], "c": SPACES["loguniform"]["x"]}
        return {**SPACES, "numbers": numbers, "beside a nested choice": SPACE}


def new(space: Any = PLANE, **arguments: Any) -> CmaEs:
    tuner = CmaEs(seed=1, **arguments)
    tuner.update_search_space(space)
    return tuner


def distance(parameters: Any) -> float:
    return float((parameters["x"] - 0.8) ** 2 + (parameters["y"] - 0.3) ** 2)


@pytest.mark.parametrize(("mode", "sign"), [("minimize", 1.0), ("maximize", -1.0)])
def test_it_finds_better_trials_than_chance(mode: Any, sign: float) -> None:
    found = mean_best(lambda seed: CmaEs(optimize_mode=mode, seed=seed), sign=sign)
    assert found < 0.85 * mean_best(lambda seed: Random(seed=seed))


def test_it_converges_on_numbers() -> None:
    tuner = new()
    for number in range(150):
        parameters = tuner.propose(number)
        tuner.learn(result(number, parameters, distance(parameters)))
    assert distance(tuner.propose(150)) < 1e-3


def test_a_generation_counts_when_it_is_complete() -> None:
    tuner, nothing_learned = new(population_size=5), new(population_size=5)
    for number in range(4):
        tuner.learn(result(number, tuner.propose(number), 1.0 * number))
    assert tuner.propose(4) == nothing_learned.propose(4)
    tuner.learn(result(4, tuner.propose(4), 9.0))
    assert tuner.propose(5) != nothing_learned.propose(5)


def test_trials_that_fail_are_the_worst_of_their_generation() -> None:
    tuner = new(population_size=4)
    for step in range(12):
        for number in range(4 * step, 4 * step + 4):
            parameters: Any = tuner.propose(number)
            is_bad = parameters["x"] < 0.6
            tuner.learn(ended(number, parameters, TrialStatus.FAILED) if is_bad else result(number, parameters, 1.0))
    later: list[Any] = [tuner.propose(number) for number in range(100, 150)]
    assert sum(parameters["x"] > 0.6 for parameters in later) > 40


def test_completely_failed_generation_is_ignored() -> None:
    tuner = new(population_size=4)
    for number in range(8):
        tuner.learn(ended(number, tuner.propose(number), TrialStatus.EARLY_STOPPED))
    assert tuner.propose(9) == new(population_size=4).propose(9)


def test_choices_and_branches_are_learned() -> None:
    tuner = new({**PLANE, "c": dimension("choice", "bad", "good", "worse")})
    for number in range(80):
        parameters = tuner.propose(number)
        tuner.learn(result(number, parameters, distance(parameters) + (parameters["c"] != "good")))
    assert [tuner.propose(number)["c"] for number in range(80, 110)].count("good") > 20


def test_imported_results_make_the_first_distribution() -> None:
    tuner = new()
    grid = [{"x": x / 20, "y": y / 20} for x in range(21) for y in range(21)]
    tuner.import_data([{"parameter": point, "value": distance(point)} for point in grid])
    assert tuner.state()["learned"] == 441
    drawn: list[Any] = [tuner.propose(number) for number in range(40)]
    assert sum(parameters["x"] for parameters in drawn) / 40 == pytest.approx(0.8, abs=0.1)
    assert sum(parameters["y"] for parameters in drawn) / 40 == pytest.approx(0.3, abs=0.1)
