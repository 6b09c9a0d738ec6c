"""Evolution: the contract, its population, and that children are near their parents."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.domain.trial_status import TrialStatus
from nni_manager.tuners.contract import Tuner
from nni_manager.tuners.evolution import Evolution
from nni_manager.tuners.random import Random
from nni_manager.tuners.testing import SPACES, TunerContract, dimension, result
from tests.tuners.learners import SPACE, ended, mean_best

pytestmark = pytest.mark.unit


class TestEvolution(TunerContract):
    def make(self) -> Tuner:
        return Evolution(seed=3, population_size=8)


class TestEvolutionAtItsBounds(TunerContract):
    def make(self) -> Tuner:
        return Evolution(seed=3, population_size=0, optimize_mode="minimize")


def new(space: Any, population_size: int, **arguments: Any) -> Evolution:
    tuner = Evolution(seed=1, population_size=population_size, **arguments)
    tuner.update_search_space(space)
    return tuner


@pytest.mark.parametrize(("mode", "sign"), [("minimize", 1.0), ("maximize", -1.0)])
def test_it_finds_better_trials_than_chance(mode: Any, sign: float) -> None:
    found = mean_best(lambda seed: Evolution(optimize_mode=mode, population_size=10, seed=seed), sign=sign)
    assert found < 0.9 * mean_best(lambda seed: Random(seed=seed))


def test_the_first_population_is_drawn_at_random() -> None:
    tuner, nothing_learned = new(SPACES["mixed"], 4), new(SPACES["mixed"], 4)
    for number in range(4):
        assert tuner.propose(number) == nothing_learned.propose(number)
        tuner.learn(result(number, tuner.propose(number), 1.0 * number))
    assert tuner.propose(4) != nothing_learned.propose(4)


def test_a_child_differs_from_its_parent_in_some_value() -> None:
    names = [f"c{number}" for number in range(8)]
    tuner = new({name: dimension("choice", 0, 1, 2) for name in names}, 2, optimize_mode="minimize")
    for _ in range(2):
        tuner.learn(result(None, dict.fromkeys(names, 1), 1.0))
    changes = [[value != 1 for value in tuner.propose(number).values()].count(True) for number in range(100)]
    assert min(changes) == 1 and 1.2 < sum(changes) / 100 < 3


def test_only_the_best_have_children() -> None:
    tuner = new({"x": dimension("uniform", 0, 1)}, 4, optimize_mode="minimize")
    for number in range(40):
        tuner.learn(result(None, {"x": 0.2 if number % 10 == 0 else 0.9}, float(number % 10)))
    near = [abs(tuner.propose(number)["x"] - 0.2) < 0.35 for number in range(60)]  # type: ignore[operator]
    assert near.count(True) > 45


def test_failed_trials_are_members_but_not_parents() -> None:
    tuner = new(SPACE, 3, optimize_mode="minimize")
    for number, status in enumerate((TrialStatus.FAILED, TrialStatus.EARLY_STOPPED, TrialStatus.FAILED)):
        tuner.learn(ended(number, tuner.propose(number), status))
    assert tuner.state() == {"learned": 0, "failed": 3, "running": 0}
    drawn = new(SPACE, 3).propose(9)
    assert tuner.propose(9) == drawn  # nothing but bad ones: by chance
    tuner.learn(result(10, drawn, 1.0))
    assert tuner.propose(11) != new(SPACE, 3).propose(11)


def test_imported_results_are_a_first_population() -> None:
    tuner = new({"x": dimension("uniform", 0, 1)}, 10, optimize_mode="minimize")
    tuner.import_data([{"parameter": {"x": 0.25}, "value": 1.0} for _ in range(10)])
    near = [abs(tuner.propose(number)["x"] - 0.25) < 0.3 for number in range(60)]  # type: ignore[operator]
    assert near.count(True) > 45
