"""TPE: the contract, that it finds optima, and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nni_manager.tuners.contract import Tuner
from nni_manager.tuners.optuna_tpe import TPE, TpeArguments
from nni_manager.tuners.random import Random
from nni_manager.tuners.testing import SPACES, TunerContract, dimension, result

pytestmark = pytest.mark.unit


class TestTPE(TunerContract):
    proposals = 16

    def make(self) -> Tuner:
        return TPE(seed=3, tpe_args={"n_startup_jobs": 5})


class TestTPEWithEveryArgument(TestTPE):
    def spaces(self) -> dict[str, Any]:
        return {name: SPACES[name] for name in ("mixed", "nested")}

    def make(self) -> Tuner:
        arguments = {"n_startup_jobs": 4, "n_ei_candidates": 6, "linear_forgetting": 5, "prior_weight": 2}
        return TPE(optimize_mode="maximize", seed=3, tpe_args={**arguments, "gamma": 0.5, "constant_liar_type": "mean"})


class TestTPEAtItsBounds(TestTPEWithEveryArgument):
    def make(self) -> Tuner:
        arguments = {"n_startup_jobs": 0, "n_ei_candidates": 1, "linear_forgetting": 1, "prior_weight": 0}
        return TPE(seed=3, tpe_args={**arguments, "gamma": 5e-324})


def new(space: Any, **arguments: Any) -> TPE:
    tuner = TPE(seed=1, **arguments)
    tuner.update_search_space(space)
    return tuner


def best(tuner: Tuner, proposals: int, loss: Callable[[Any], float], sign: float = 1.0) -> float:
    losses = []
    for number in range(proposals):
        parameters = tuner.propose(number)
        losses.append(loss(parameters))
        tuner.learn(result(number, parameters, sign * losses[-1]))
    return min(losses[-10:])


@pytest.mark.parametrize(("mode", "sign"), [("minimize", 1.0), ("maximize", -1.0)])
def test_tpe_converges_on_a_normal_and_a_choice(mode: str, sign: float) -> None:
    space = {"x": dimension("normal", 0, 10), "c": dimension("choice", "bad", "good", "worse")}

    def loss(parameters: Any) -> float:
        return float(abs(parameters["x"] - 7) + (0 if parameters["c"] == "good" else 5))

    assert best(new(space, optimize_mode=mode), 70, loss, sign) < 0.5


def test_tpe_finds_the_right_branch() -> None:
    branches = [{"_name": "a"}, {"_name": "b", "x": dimension("loguniform", 1e-6, 1)}]

    def loss(parameters: Any) -> float:
        return float(abs(parameters["m"]["x"] - 1e-3)) if parameters["m"]["_name"] == "b" else 1.0

    assert best(new({"m": dimension("choice", *branches)}), 60, loss) < 1e-3


def test_the_first_trials_are_drawn_at_random() -> None:
    tuner, random = new(SPACES["mixed"]), Random(seed=1)
    random.update_search_space(SPACES["mixed"])
    for number in range(10):
        assert tuner.propose(number) == random.propose(number)
        tuner.learn(result(number, tuner.pending[number], 1.0 * number))
    assert tuner.propose(10) != random.propose(10)


@pytest.mark.parametrize("liar", ["best", "worst", "mean"])
def test_running_trials_change_proposals(liar: str) -> None:
    def proposed(pending: int) -> object:
        tuner = new(SPACES["uniform"], tpe_args={"n_startup_jobs": 8, "constant_liar_type": liar})
        for number in range(8):
            tuner.learn(result(number, {"x": number / 4}, abs(number - 4.0)))
        for number in range(100, 100 + pending):
            tuner.propose(number)
        return tuner.propose(50)

    assert proposed(0) != proposed(6)


def test_running_trials_are_ignored_without_a_liar() -> None:
    tuner = new(SPACES["uniform"], tpe_args={"n_startup_jobs": 1, "constant_liar_type": None})
    tuner.learn(result(0, {"x": 0.5}, 1.0))
    first = tuner.propose(1)
    tuner.propose(2)
    assert tuner.propose(1) == first


def test_only_first_trial_is_random_without_random_start() -> None:
    tuner, random = new(SPACES["mixed"], tpe_args={"n_startup_jobs": 0}), Random(seed=1)
    random.update_search_space(SPACES["mixed"])
    assert tuner.propose(0) == random.propose(0)
    assert tuner.propose(1) == random.propose(1)  # no result is in
    tuner.learn(result(0, tuner.pending[0], 1.0))
    assert tuner.propose(2) != random.propose(2)


def test_arguments_that_are_null_are_not_set() -> None:
    nothing = dict.fromkeys(("n_startup_jobs", "n_ei_candidates", "linear_forgetting", "prior_weight", "gamma"))
    assert TpeArguments.parse(nothing) == TpeArguments()
    assert TpeArguments.parse({"constant_liar_type": None}).constant_liar_type is None


def test_failed_trials_are_not_learned() -> None:
    tuner = new(SPACES["uniform"])
    for number, value in enumerate([None, float("nan"), float("-inf"), "0.1", True, {"loss": 1}]):
        tuner.learn(result(number, {"x": 0.5}, value))
    assert tuner.state() == {"learned": 0, "failed": 6, "running": 0}


def test_the_default_of_an_object_counts() -> None:
    tuner = new(SPACES["uniform"])
    tuner.learn(result(0, {"x": 0.5}, {"default": 3, "other": None}))
    assert tuner.state()["learned"] == 1


def test_imported_data_replaces_the_random_start() -> None:
    data = [{"parameter": {"x": number * 0.1 - 1}, "value": -abs(number - 15)} for number in range(31)]
    distances = []
    for seed in range(11):
        tuner = TPE(seed=seed, optimize_mode="maximize")
        tuner.update_search_space(SPACES["uniform"])
        tuner.import_data(data)
        assert tuner.state()["learned"] == 31
        distances.append(abs(tuner.propose(0)["x"] - 0.5))  # type: ignore[operator]
    # by chance alone, half of them would be more than 0.75 away
    assert sorted(distances)[5] < 0.3


def test_results_of_another_space_come_back_with_it() -> None:
    tuner = new(SPACES["uniform"])
    tuner.learn(result(0, {"x": 0.5}, 1.0))
    tuner.update_search_space({"x": dimension("uniform", 0, 0.1)})
    assert tuner.state()["learned"] == 0
    tuner.update_search_space(SPACES["uniform"])
    assert tuner.state()["learned"] == 1


def test_optuna_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    tuner = new(SPACES["mixed"], tpe_args={"n_startup_jobs": 2, "gamma": 0.3})
    best(tuner, 6, lambda parameters: float(parameters["z"]))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["mixed", "nested"])
def test_proposals_equal_optunas_without_inferred_space(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from optuna.samplers import TPESampler
    from optuna.search_space import IntersectionSearchSpace

    def proposals() -> list[object]:
        tuner = new(SPACES[name], tpe_args={"n_startup_jobs": 4})
        made = []
        for number in range(12):
            made.append(tuner.propose(number))
            tuner.learn(result(number, made[-1], (number * 7) % 5))
        return made

    with monkeypatch.context() as context:
        context.setattr(
            "nni_manager.tuners.optuna_tpe._sampler", lambda seed, space, **given: TPESampler(seed=seed, **given)
        )
        of_optuna = proposals()

    def inferred(*_: object) -> None:
        pytest.fail("the search space is computed from all trials, which takes longer with each of them")

    monkeypatch.setattr(IntersectionSearchSpace, "calculate", inferred)
    assert proposals() == of_optuna
