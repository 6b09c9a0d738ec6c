"""Auto: the contract in each of its parts, what it chooses, and that it finds optima."""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nni_manager.domain.space.search_space import parse
from nni_manager.tuners.auto import choice, start, steps
from nni_manager.tuners.auto.model import Model
from nni_manager.tuners.auto.tuner import Auto
from nni_manager.tuners.contract import Tuner
from nni_manager.tuners.distinct import Distinct
from nni_manager.tuners.random import Random
from nni_manager.tuners.testing import SPACES, Space, TunerContract, dimension, result

pytestmark = pytest.mark.unit

BOX = {f"x{index}": dimension("uniform", 0, 1) for index in range(3)}


def new(
    space: Space = BOX, *, mode: Any = "minimize", seed: int = 1, trials: int | None = None, at_once: int = 1
) -> Auto:
    tuner = Auto(optimize_mode=mode, seed=seed)
    tuner.expect(trials=trials, concurrency=at_once)
    tuner.update_search_space(space)
    return tuner


class TestAuto(TunerContract):
    proposals = 14

    def make(self) -> Tuner:
        return Auto(optimize_mode="minimize", seed=3)


class TestAutoWithoutAModel(TunerContract):
    def make(self) -> Tuner:
        tuner = Auto(optimize_mode="maximize", seed=3)
        tuner.expect(trials=12, concurrency=1000)
        return tuner


def search(tuner: Tuner, trials: int, loss: Callable[[Any], float], sign: float = 1.0) -> list[float]:
    losses = []
    for number in range(trials):
        parameters = tuner.propose(number)
        losses.append(loss(parameters))
        tuner.learn(result(number, parameters, sign * losses[-1]))
    return losses


def test_noisy_results_are_searched_near_the_bottom() -> None:
    """The last trials are good ones, so that the best reported result is not luck."""
    late = []
    for seed in range(3):
        source, tuner = random.Random(seed), new(seed=seed)
        for number in range(50):
            parameters = tuner.propose(number)
            late.append(sum((float(value) - 0.3) ** 2 for value in parameters.values()))  # type: ignore[attr-defined]
            tuner.learn(result(number, parameters, late[-1] + source.gauss(0.0, 0.2)))
        del late[-50:-20]
    assert statistics.fmean(late) < 0.12, "a random place has 0.37"


def test_first_results_that_all_failed_stop_nothing() -> None:
    tuner = new()
    for number in range(64):
        tuner.learn(result(number, tuner.propose(number), None))
    for number in range(64, 68):
        parameters = tuner.propose(number)
        assert parse(BOX).contains(parameters)
        tuner.learn(result(number, parameters, float(parameters["x0"])))  # type: ignore[arg-type]


def test_logarithm_resolves_no_more_than_the_noise() -> None:
    source = np.random.default_rng(1)
    rows = source.random((40, 3))
    model = Model(parse(BOX))
    exact = ((rows - 0.3) ** 2).sum(axis=1)
    _, offset = model._best_fit(rows, exact**3)
    assert offset is not None
    _, offset = model._best_fit(rows, exact + source.normal(size=40) * 0.3)
    assert offset is None or offset > 0.1


@pytest.mark.parametrize(("mode", "sign"), [("minimize", 1.0), ("maximize", -1.0)])
def test_it_goes_down_to_the_bottom_of_a_bowl(mode: str, sign: float) -> None:
    def loss(parameters: Any) -> float:
        return sum((float(parameters[f"x{index}"]) - 0.2 - 0.3 * index) ** 2 for index in range(3))

    assert min(search(new(mode=mode), 30, loss, sign)) < 1e-3


def test_it_finds_the_right_branch_and_the_place_in_it() -> None:
    branches = [{"_name": "a"}, {"_name": "b", "x": dimension("loguniform", 1e-6, 1)}]

    def loss(parameters: Any) -> float:
        model = parameters["m"]
        return abs(math.log10(model["x"]) + 3) if model["_name"] == "b" else 5.0

    assert min(search(new({"m": dimension("choice", *branches)}), 30, loss)) < 0.1


def test_steps_alone_find_more_than_chance() -> None:
    def loss(parameters: Any) -> float:
        return sum(abs(float(value) - 0.7) for value in parameters.values())

    chance = Random(seed=1)
    chance.update_search_space(BOX)
    assert min(search(new(at_once=1000), 150, loss)) < min(search(chance, 150, loss)) / 3


@pytest.mark.parametrize("at_once", [1, 1000])
def test_a_finite_space_is_proposed_once_each_and_then_again(at_once: int) -> None:
    space = {"a": dimension("choice", "x", "y", "z"), "b": dimension("randint", 0, 4)}
    tuner = new(space, at_once=at_once)
    proposed = []
    for number in range(14):
        proposed.append(json.dumps(tuner.propose(number)))
        tuner.learn(result(number, json.loads(proposed[-1]), float(number % 5)))
    assert len(set(proposed[:12])) == 12 and set(proposed[12:]) <= set(proposed[:12])


@pytest.mark.parametrize("at_once", [1, 1000])
def test_every_branch_of_a_nested_space_is_proposed_once(at_once: int) -> None:
    branches = [
        {"_name": "tree", "depth": dimension("randint", 0, 3), "leaves": dimension("choice", 1, 2, 3, 4)},
        {"_name": "near", "k": dimension("randint", 1, 9)},
        {"_name": "linear"},
        {"_name": "naive"},
    ]
    tuner, proposed = Distinct(new(at_once=at_once)), []
    tuner.update_search_space({"model": dimension("choice", *branches)})
    for number in range(22):
        proposed.append(json.dumps(tuner.propose(number)))
        tuner.learn(result(number, json.loads(proposed[-1]), float(number**3 % 7)))
    assert len(set(proposed)) == 22


@pytest.mark.thorough
def test_a_long_list_is_proposed_once_though_many_run() -> None:
    auto, running, proposed = new(at_once=60), [], set()
    tuner = Distinct(auto)
    tuner.update_search_space({"x": dimension("randint", 0, 300)})
    for number in range(300):
        parameters: Any = tuner.propose(number)
        proposed.add(parameters["x"])
        running.append((number, parameters))
        if len(running) == 60:
            ended, parameters = running.pop(0)
            tuner.learn(result(ended, parameters, abs(float(parameters["x"]) - 37)))
    assert tuner.state() and len(auto.ended) == 241
    assert len(proposed) == 300


def test_trials_that_run_are_kept_apart() -> None:
    tuner = new()
    for number in range(8):
        tuner.learn(result(number, {f"x{index}": (number * 5 + index) % 8 / 8 for index in range(3)}, float(number)))
    proposed = [tuner.propose(number) for number in range(20, 26)]
    assert len({json.dumps(parameters) for parameters in proposed}) == 6


def test_failed_trials_keep_it_away() -> None:
    def place(learned: object) -> list[float]:
        tuner = new({"x": dimension("uniform", 0, 1)})
        for number in range(12):  # the better, the further to the right; what lies at the very right fails
            x = number / 12
            tuner.learn(result(number, {"x": x}, learned if x > 0.8 else 1 - x))
        return [float(tuner.propose(number)["x"]) for number in range(100, 106)]  # type: ignore[arg-type]

    assert sum(x > 0.8 for x in place(None)) < sum(x > 0.8 for x in place(0.05))


def test_results_that_are_all_alike_or_failed_stop_nothing() -> None:
    for value in (None, 1.0, 1e300, float("nan")):
        tuner = new()
        for number in range(14):
            tuner.learn(result(number, tuner.propose(number), value))
        assert parse(BOX).contains(tuner.propose(99))


def test_results_of_any_size_are_searched() -> None:
    for factor in (1e-300, 1e-12, 1e12, 1e300):
        tuner = new()
        assert min(search(tuner, 25, lambda values, f=factor: f * (float(values["x0"]) - 0.4) ** 2)) < 1e-3 * factor  # type: ignore[misc]


def test_start_covers_whole_space() -> None:
    columns = list(zip(*(start.point(7, number, 6) for number in range(64)), strict=True))
    for column in columns:
        assert {int(value * 4) for value in column} == {0, 1, 2, 3}
        assert sorted(int(value * 4) for value in column).count(0) in range(12, 21)
    assert start.point(7, 3, 6) != start.point(8, 3, 6)


def chosen(space: Space, *, trials: int | None = 60, concurrency: int = 1) -> choice.Choice:
    return choice.choose(parse(space), trials, concurrency)


def test_choice_is_explained() -> None:
    assert chosen(SPACES["nested"]).sentence == (
        "Auto begins with 6 quasi-random trials, then a Gaussian process: 6 dimensions (2 choices, 4 in branches), 60"
        " trials and 1 at a time are few enough for a model."
    )
    assert "any number of trials" in chosen(BOX, trials=None).sentence
    assert "steps from the best from 200 results on" in chosen(BOX, trials=10_000).sentence
    assert "too many at a time" in chosen(BOX, concurrency=500).sentence
    wide = {f"x{index}": dimension("uniform", 0, 1) for index in range(200)}
    assert "200 dimensions, 60 trials and 1 at a time are too many for a model" in chosen(wide).sentence


def test_few_trials_have_a_short_start() -> None:
    assert chosen(BOX, trials=6).start == 2
    assert chosen(BOX, trials=1).start == 1
    assert chosen(SPACES["uniform"]).start == 4


def test_the_sentence_is_in_the_state_and_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    tuner = new(trials=20)
    search(tuner, 5, lambda parameters: 1.0)
    assert tuner.state()["chosen"] == caplog.messages[0]
    assert len(caplog.messages) == 1


def test_an_empty_space_has_one_proposal() -> None:
    tuner = new({})
    assert [tuner.propose(number) for number in range(3)] == [{}, {}, {}]


def test_most_steps_keep_something_of_one_of_the_best() -> None:
    tuner = new(at_once=1000)
    search(tuner, 40, lambda parameters: float(parameters["x0"]))
    source, best = random.Random(3), tuner.ranked[:8]
    made = [steps.step(tuner.space, tuner.ranked, source) for _ in range(200)]
    near = [
        step for step in made if any(sum(step.get(key) == one.units[key] for key in one.units) >= 1 for one in best)
    ]
    assert 80 < len(near) < 200
    assert 0 < sum(not step for step in made) < 40  # drawn from the space
    assert all(0.0 <= value <= 1.0 for step in made for value in step.values())


def test_the_first_proposals_import_no_numpy() -> None:
    code = (
        "import sys; from nni_manager.tuners.auto.tuner import Auto; tuner = Auto(optimize_mode='minimize', seed=1);"
        "tuner.update_search_space({'x': {'_type': 'uniform', '_value': [0, 1]}}); tuner.propose(0);"
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
