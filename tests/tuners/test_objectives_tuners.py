"""Tuners for several objectives: the contract, that they find the front, and constraints."""

from __future__ import annotations

import math
import os
import random
from typing import Any

import pytest

from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.objectives import Goals, extended_set
from nni_manager.domain.space.search_space import parse
from nni_manager.tuners import registry
from nni_manager.tuners.contract import Tuner
from nni_manager.tuners.nsga2 import NSGA2
from nni_manager.tuners.objectives_tpe import ObjectivesTPE
from nni_manager.tuners.testing import SPACES, TunerContract, dimension, result, through_json

pytestmark = pytest.mark.unit

OBJECTIVES = {"f1": "minimize", "f2": "minimize"}
SPACE = {"x": dimension("uniform", 0, 1), "y": dimension("uniform", 0, 1), "z": dimension("choice", "a", "b")}


class TestNSGA2(TunerContract):
    """The results of the contract's tests are numbers: they are the objective `default`."""

    proposals = 20

    def make(self) -> Tuner:
        return told(NSGA2(seed=3, population_size=4), {"default": "minimize"})


class TestNSGA2WithEveryArgument(TunerContract):
    proposals = 12

    def spaces(self) -> dict[str, Any]:
        return {name: SPACES[name] for name in ("mixed", "nested")}

    def make(self) -> Tuner:
        tuner = NSGA2(seed=3, population_size=2, mutation_prob=1.0, crossover_prob=0.0, swapping_prob=1.0)
        return told(tuner, {"default": "maximize"})


class TestObjectivesTPE(TunerContract):
    proposals = 14

    def make(self) -> Tuner:
        return told(ObjectivesTPE(seed=3, tpe_args={"n_startup_jobs": 5}), {"default": "minimize"})


class TestObjectivesTPEWithEveryArgument(TestObjectivesTPE):
    def spaces(self) -> dict[str, Any]:
        return {name: SPACES[name] for name in ("mixed", "nested")}

    def make(self) -> Tuner:
        arguments = {"n_startup_jobs": 0, "n_ei_candidates": 1, "linear_forgetting": 3, "prior_weight": 0}
        tuner = ObjectivesTPE(seed=3, tpe_args={**arguments, "gamma": 0.5, "constant_liar_type": "mean"})
        return told(tuner, {"default": "maximize"}, {"memory": "<= 8"})


def told(tuner: Tuner, objectives: dict[str, str], constraints: dict[str, str] | None = None) -> Tuner:
    tuner.pursue(Goals.of(objectives, constraints or {}))
    return tuner


def made(name: str, seed: int, objectives: dict[str, str], constraints: dict[str, str], **arguments: Any) -> Tuner:
    spec = AlgorithmSpec(
        name=name, class_args={"seed": seed, **arguments}, objectives=objectives, constraints=constraints
    )
    tuner = registry.create(spec)
    tuner.update_search_space(SPACE)
    return tuner


def zdt1(parameters: Any) -> dict[str, float]:
    """The front is y = 0 and z = a; `memory` is above 0.8 in a part of it."""
    g = 1 + 9 * parameters["y"] + (parameters["z"] == "b")
    return {"f1": parameters["x"], "f2": g * (1 - math.sqrt(parameters["x"] / g)), "memory": parameters["x"]}


def volume(name: str, seed: int, constraints: dict[str, str], **arguments: Any) -> float:
    """The area that 80 trials, four at a time, dominate up to f1 = 1.1 and f2 = 11, by feasible results alone."""
    tuner, goals = made(name, seed, OBJECTIVES, constraints, **arguments), Goals.of(OBJECTIVES, constraints)
    front: Any = []
    for first in range(0, 80, 4):
        proposed = [(number, tuner.propose(number)) for number in range(first, first + 4)]
        for number, parameters in proposed:
            value = zdt1(parameters)
            tuner.learn(result(number, parameters, value))
            front = extended_set(front, [(number, goals.judge(value))])
    area, below = 0.0, 11.0
    for f1, f2 in (worth.losses for _, worth in front if worth.is_feasible):
        area, below = area + (1.1 - f1) * (below - f2), f2
    return area


@pytest.mark.parametrize("constraints", [{}, {"memory": "<= 0.5"}], ids=["free", "constrained"])
@pytest.mark.parametrize(("name", "arguments"), [("TPE", {}), ("NSGA2", {"population_size": 12})], ids=["TPE", "NSGA2"])
def test_front_is_better_than_random(name: str, arguments: dict[str, Any], constraints: dict[str, str]) -> None:
    found = sum(volume(name, seed, constraints, **arguments) for seed in range(3))
    assert found > sum(volume("Random", seed, constraints) for seed in range(3))


def test_results_that_satisfy_the_constraint_are_preferred() -> None:
    """The best f1 alone would be reached where the constraint is violated."""
    tuner = made("NSGA2", 1, {"f1": "minimize"}, {"memory": ">= 0.6"}, population_size=8)
    chosen = []
    for number in range(80):
        parameters: Any = tuner.propose(number)
        chosen.append(parameters["x"])
        tuner.learn(result(number, parameters, zdt1(parameters)))
    feasible = sum(x >= 0.6 for x in chosen[-40:])
    assert feasible > 24


def test_results_without_an_objective_teach_nothing() -> None:
    tuner = made("NSGA2", 1, OBJECTIVES, {}, population_size=2)
    for number, value in enumerate([{"f1": 1}, {"f1": 1, "f2": math.nan}, 3, None, {"f1": 1, "f2": 2}]):
        tuner.learn(result(number, tuner.propose(number), value))
    assert tuner.state() == {"learned": 1, "failed": 4, "running": 0}


def test_imported_results_are_learned() -> None:
    tuner = made("TPE", 1, OBJECTIVES, {})
    tuner.import_data([{"parameter": {"x": 0.5, "y": 0.5, "z": "a"}, "value": {"f1": 1, "f2": 2}}])
    assert tuner.state()["learned"] == 1


def test_a_tuner_that_goes_by_one_number_refuses_objectives() -> None:
    with pytest.raises(InvalidInput, match="objectives: GridSearch supports a single number only"):
        registry.create(AlgorithmSpec(name="GridSearch", objectives=OBJECTIVES))


#: In all spaces together; a release is judged by 10000.
PROPOSALS = int(os.environ.get("NNI_PROPOSALS", "500"))


@pytest.mark.parametrize("name", ["TPE", "NSGA2"])
def test_proposals_lie_in_spaces_of_every_type(name: str) -> None:
    """With results that lack an objective, are not numbers, or violate the constraint without bound."""
    source = random.Random(1)
    for space in SPACES.values():
        tuner = made(name, 1, OBJECTIVES, {"memory": "<= 0.5"}, **({"population_size": 5} if name == "NSGA2" else {}))
        tuner.update_search_space(space)
        for number in range(math.ceil(PROPOSALS / len(SPACES))):
            batch = tuner.propose_many([number])
            if batch.exhausted:
                break
            parameters = through_json(batch.proposals[0][1])
            assert parse(space).contains(parameters), parameters
            value: dict[str, float] = {key: source.choice([source.random(), 0.0, 1e308]) for key in OBJECTIVES}
            if number % 3:
                value["memory"] = source.random()
            tuner.learn(result(number, parameters, None if number % 7 == 6 else value))
