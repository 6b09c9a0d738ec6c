"""GPTuner and SMAC: the contract, that their models find optima, NNI's arguments, and the packages that they need."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.tuners import registry
from nni_manager.tuners.contract import Tuner
from nni_manager.tuners.models.gp import GPTuner
from nni_manager.tuners.models.model_search import ModelTuner
from nni_manager.tuners.models.smac import SMAC
from nni_manager.tuners.random import Random
from nni_manager.tuners.testing import SPACES, Space, TunerContract, dimension, result
from tests.tuners.learners import SPACE, ended, mean_best

pytestmark = [pytest.mark.unit, pytest.mark.timeout(180)]

SMALL = {"cold_start_num": 4, "selection_num_warm_up": 200, "selection_num_starting_points": 10}
PLANE: dict[str, Any] = {"x": dimension("uniform", 0, 1), "y": dimension("uniform", 0, 1)}


def test_smac_takes_results_of_any_size() -> None:
    tuner = SMAC(seed=3, optimize_mode="minimize")
    tuner.update_search_space(PLANE)
    for number in range(14):
        parameters: Any = tuner.propose(number)
        tuner.learn(result(number, parameters, (4 * parameters["x"] - 1) * 5e307))
    assert set(tuner.propose(99)) == {"x", "y"}  # type: ignore[call-overload]


#: To a model every type is a number from 0 to 1, by code that all tuners share; `test_every_space` has all types.
MODELLED = {name: SPACES[name] for name in ("mixed", "nested", "choice", "qlognormal")}


class TestGPTuner(TunerContract):
    proposals = 9

    def spaces(self) -> dict[str, Space]:
        return MODELLED

    def make(self) -> Tuner:
        return GPTuner(seed=3, **SMALL)  # type: ignore[arg-type]


class TestGPTunerWithEveryArgument(TestGPTuner):
    def spaces(self) -> dict[str, Space]:
        return {name: SPACES[name] for name in ("mixed", "nested")}

    def make(self) -> Tuner:
        given: dict[str, Any] = {"utility": "ucb", "kappa": 1.0, "xi": 0.1, "nu": 1.5, "alpha": 1e-3}
        return GPTuner(optimize_mode="minimize", seed=3, **SMALL, **given)


class TestSMAC(TunerContract):
    proposals = 14

    def spaces(self) -> dict[str, Space]:
        return MODELLED

    def make(self) -> Tuner:
        return SMAC(seed=3, config_dedup=True)


@pytest.fixture(params=[GPTuner, SMAC])
def make(request: pytest.FixtureRequest) -> Callable[..., ModelTuner]:
    def new(space: Any = PLANE, **arguments: Any) -> ModelTuner:
        tuner: ModelTuner = request.param(optimize_mode="minimize", **{"seed": 1, **arguments})
        tuner.update_search_space(space)
        return tuner

    return new


def distance(parameters: Any) -> float:
    return float((parameters["x"] - 0.8) ** 2 + (parameters["y"] - 0.3) ** 2)


def told(tuner: Tuner, points: list[Any], bad: Callable[[Any], bool] = lambda point: False) -> Tuner:
    """The tuner with the distances of these points; some failed."""
    for number, point in enumerate(points, start=1000):
        is_bad = bad(point)
        tuner.learn(ended(number, point, TrialStatus.FAILED) if is_bad else result(number, point, distance(point)))
    return tuner


def grid(count: int) -> list[Any]:
    return [{"x": x / count, "y": y / count} for x in range(count + 1) for y in range(count + 1)]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [GPTuner, SMAC])
def test_they_find_much_better_trials_than_chance(kind: Any) -> None:
    """To minimize is what all others here ask of both."""

    def made(seed: int) -> Tuner:
        return kind(optimize_mode="maximize", seed=seed, **(SMALL if kind is GPTuner else {}))  # type: ignore[no-any-return]

    found = mean_best(made, sign=-1.0, proposals=30, seeds=3)
    assert found < 0.9 * mean_best(lambda seed: Random(seed=seed), proposals=30, seeds=30)


def test_the_first_trials_are_spread_evenly(make: Callable[..., ModelTuner]) -> None:
    proposed: list[Any] = [make().propose(number) for number in range(8)]
    assert len({(point["x"] // 0.5, point["y"] // 0.5) for point in proposed}) == 4
    assert make(seed=2).propose(0) != proposed[0]


def test_trials_that_fail_are_kept_away_from(make: Callable[..., ModelTuner]) -> None:
    tuner = told(make(), grid(4), bad=lambda point: point["x"] > 0.6)
    proposed: list[Any] = [tuner.propose(number) for number in range(8)]
    assert tuner.state() == {"learned": 15, "failed": 10, "running": 8}
    assert [point["x"] < 0.75 for point in proposed].count(True) >= 6


def test_trials_at_the_same_time_keep_apart(make: Callable[..., ModelTuner]) -> None:
    tuner = told(make(), grid(3))
    proposed: list[Any] = [tuner.propose(number) for number in range(6)]
    assert len({(round(point["x"], 3), round(point["y"], 3)) for point in proposed}) == 6
    assert proposed[1] != told(make(), grid(3)).propose(1)  # no other trial runs


def test_imported_results_replace_the_first_trials(make: Callable[..., ModelTuner]) -> None:
    tuner = make()
    tuner.import_data([{"parameter": point, "value": distance(point)} for point in grid(6)])
    assert distance(tuner.propose(0)) < 0.05


def test_proposals_do_not_repeat_while_others_exist(make: Callable[..., ModelTuner]) -> None:
    tuner = make({"c": dimension("choice", *range(14))}, **({"config_dedup": True} if type(make()) is SMAC else {}))
    for number in range(14):
        parameters = tuner.propose(number)
        tuner.learn(result(number, parameters, 1.0))
    assert len({str(units) for units, _ in tuner.ended[10:]}) == 4
    tuner.propose(15)  # no point is left, which is not an error


def test_many_results_are_modelled_in_part(make: Callable[..., ModelTuner]) -> None:
    tuner = told(make(), grid(22))
    units, losses = tuner._modelled()
    assert len(units) == len(losses) == 400
    assert min(losses) == min(observation.loss for observation in tuner.observed)


def test_empty_space_and_equal_results_are_valid(make: Callable[..., ModelTuner]) -> None:
    assert make({}).propose(0) == {}
    tuner = make(SPACE)
    for number in range(12):
        tuner.learn(result(number, tuner.propose(number), 5.0))
    assert tuner.propose(20)


@pytest.mark.parametrize("utility", ["ei", "ucb", "poi"])
def test_each_utility_goes_to_the_optimum(utility: Any) -> None:
    tuner = GPTuner(optimize_mode="minimize", utility=utility, kappa=0.1, seed=1)
    tuner.update_search_space(PLANE)
    assert distance(told(tuner, grid(5)).propose(0)) < 0.03


@pytest.mark.parametrize("name", ["GPTuner", "SMAC"])
def test_missing_package_is_named_with_extra(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "nni_manager.tuners.models.model_search.find_spec", lambda name: None if name == "sklearn" else find(name)
    )
    with pytest.raises(InvalidInput, match=rf"{name} needs scikit-learn.*pip install 'nni-manager\[gp\]'"):
        registry.create(AlgorithmSpec(name=name))
