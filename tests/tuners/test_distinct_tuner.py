"""Every point of a finite search space once, whichever tuner proposes them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.domain.space.grid import finite_grid
from nni_manager.domain.space.parameters import text_of
from nni_manager.domain.space.search_space import parse
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.tuners import registry
from nni_manager.tuners.contract import Pending, Result, Tuner
from nni_manager.tuners.distinct import Distinct
from nni_manager.tuners.random import Random
from nni_manager.tuners.testing import Space, TunerContract, dimension, result

pytestmark = pytest.mark.unit

#: Tuner → arguments.
WRAPPED: dict[str, dict[str, object]] = {
    "Random": {},
    "TPE": {"tpe_args": {"n_startup_jobs": 3}},
    "Auto": {"optimize_mode": "minimize"},
    "Anneal": {},
    "Evolution": {"population_size": 3},
    "CmaEs": {},
    "GPTuner": {"cold_start_num": 3, "selection_num_warm_up": 100, "selection_num_starting_points": 10},
    "SMAC": {},
    "NSGA2": {"population_size": 3},
}
OBJECTIVES = {"loss": "minimize", "size": "minimize"}
SMALL = {"a": dimension("choice", 16, 20, 32, 64), "b": dimension("choice", "Adam", "SGD")}
BRANCHES = dimension(
    "choice",
    {"_name": "tree", "depth": dimension("randint", 0, 3), "rate": dimension("quniform", 0, 0.3, 0.1)},
    {"_name": "near", "k": dimension("choice", 1, True, "1")},
    {"_name": "none"},
)


class TestDistinct(TunerContract):
    proposals = 20

    def make(self) -> Tuner:
        return Distinct(Random(seed=3))

    def spaces(self) -> Mapping[str, Space]:
        finite = ("randint", "quniform", "qloguniform", "qnormal", "qlognormal")
        return {name: space for name, space in super().spaces().items() if name in finite}


def made(name: str, space: Space = SMALL) -> Tuner:
    objectives = OBJECTIVES if name == "NSGA2" else {}
    tuner = registry.create(AlgorithmSpec(name=name, class_args={**WRAPPED[name], "seed": 1}, objectives=objectives))
    tuner.update_search_space(space)
    return tuner


def everything(tuner: Tuner, *, first: int = 0, learns: bool = True) -> list[str]:
    """All proposals until they end; two of three trials have a result."""
    texts: list[str] = []
    while (batch := tuner.propose_many([first + len(texts)])).proposals:
        ((number, parameters),) = batch.proposals
        texts.append(text_of(json.loads(json.dumps(parameters))))
        value = {"default": number % 5, "loss": number % 5, "size": number % 3}
        if learns:
            tuner.learn(result(number, parameters, value if number % 3 else None))
    assert batch.exhausted
    return texts


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("learns", [True, False])
def test_finite_space_is_proposed_once_and_ends(name: str, learns: bool) -> None:
    texts = everything(made(name), learns=learns)
    assert len(texts) == len(set(texts)) == 8


@pytest.mark.parametrize("name", ["Random", "TPE", "Evolution", "CmaEs"])
def test_nested_and_stepped_spaces_are_proposed_once(name: str) -> None:
    texts = everything(made(name, {"m": BRANCHES, "q": dimension("qloguniform", 0.1, 0.3, 0.1)}))
    assert len(texts) == len(set(texts)) == (3 * 4 + 3 + 1) * 3


def test_rounded_normal_is_proposed_once() -> None:
    texts = everything(made("Random", {"x": dimension("qnormal", 1, 1, 1)}))
    assert len(texts) == len(set(texts)) == 17


@pytest.mark.parametrize("name", ["Hyperband", "BOHB"])
def test_tuners_that_repeat_by_design_are_not_wrapped(name: str) -> None:
    arguments: dict[str, object] = {"optimize_mode": "minimize"}
    if name == "Hyperband":
        arguments["R"] = 9
    assert not isinstance(registry.create(AlgorithmSpec(name=name, class_args=arguments)), Distinct)


@pytest.mark.parametrize("space", [{}, {"x": dimension("choice", 1)}, {"x": dimension("uniform", 2, 2)}])
def test_space_of_one_point_is_repeated(space: Space) -> None:
    assert len({text_of(made("Random", space).propose(number)) for number in range(20)}) == 1


def test_trials_of_any_origin_are_left_out() -> None:
    tuner = made("TPE")
    tuner.import_data([{"parameter": {"a": 16.0, "b": "Adam"}, "value": 1}])
    tuner.adopt(Pending(parameter_id=4, parameters={"a": 20, "b": "SGD"}, trial_id="run"))
    tuner.adopt(Pending(parameter_id=None, parameters={"a": 32, "b": "SGD"}, trial_id="given"))
    failed = {"parameter_id": 1, "parameters": {"a": 64, "b": "SGD"}, "trial_id": "failed"}
    tuner.learn(Result(**failed, value=None, status=TrialStatus.FAILED))  # type: ignore[arg-type]
    killed = {"parameter_id": 2, "parameters": {"a": 64, "b": "Adam"}, "trial_id": "killed"}
    tuner.learn(Result(**killed, value=None, status=TrialStatus.USER_CANCELED))  # type: ignore[arg-type]
    left = [{"a": 16, "b": "SGD"}, {"a": 20, "b": "Adam"}, {"a": 32, "b": "Adam"}]
    assert sorted(everything(tuner, first=5)) == sorted(map(text_of, left))


def test_values_that_differ_in_rounding_are_one_point() -> None:
    tuner = made("Random", {"x": dimension("quniform", 0, 1, 0.1)})
    tuner.import_data([{"parameter": {"x": 3 * 0.1}, "value": 1}, {"parameter": {"x": 1}, "value": 1}])
    texts = everything(tuner)
    assert len(texts) == 9 and not {'{"x": 0.3}', '{"x": 1}'} & set(texts)


def test_withdrawn_proposals_come_again() -> None:
    tuner = made("Random")
    batch = tuner.propose_many(range(8))
    assert tuner.propose_many([8]).exhausted
    tuner.withdraw([2, 5, 7])
    assert sorted(everything(tuner, first=9)) == sorted(text_of(dict(batch.proposals)[number]) for number in (2, 5, 7))


def test_points_of_an_earlier_space_are_left_out_of_the_next() -> None:
    tuner = made("Random", {"x": dimension("choice", 1, 2)})
    assert len(everything(tuner)) == 2
    tuner.update_search_space({"x": dimension("randint", 0, 5)})
    assert sorted(everything(tuner, first=2)) == ['{"x": 0}', '{"x": 3}', '{"x": 4}']


def test_replaced_proposal_runs_in_the_tuner() -> None:
    tuner = made("Anneal", {"x": dimension("choice", 1, 2)})
    assert isinstance(tuner, Distinct)
    proposed = {number: tuner.propose(number) for number in range(2)}
    assert tuner.inner.pending == proposed  # type: ignore[attr-defined]


def test_restored_tuner_proposes_the_rest() -> None:
    steady = made("TPE")
    proposed = {number: steady.propose(number) for number in range(5)}
    restored = made("TPE")
    running = [Pending(parameter_id=4, parameters=proposed[4], trial_id="t")]
    restored.restore(history=[result(n, proposed[n], 0.5) for n in range(4)], unfinished=running, imported=[])
    texts = everything(restored, first=5)
    assert len(texts) == 3 and not set(texts) & set(map(text_of, proposed.values()))


def test_a_huge_space_costs_as_little_as_a_small_one() -> None:
    tuner = made("Random", {name: dimension("quniform", 0, 100, 0.01) for name in "abc"})
    start = time.process_time()
    assert len({text_of(tuner.propose(number)) for number in range(200)}) == 200
    assert time.process_time() - start < 1


def test_last_points_of_a_large_space_are_found_soon() -> None:
    space = {"a": dimension("randint", 0, 200), "b": dimension("randint", 0, 200)}
    grid = finite_grid(parse(space))
    assert grid is not None
    tuner = made("Random", space)
    tuner.import_data([{"parameter": grid.point(rank), "value": 1} for rank in range(grid.count() - 3)])
    start = time.process_time()
    assert len(everything(tuner)) == 3
    assert time.process_time() - start < 1


def test_infinite_space_is_left_to_the_tuner() -> None:
    tuner: Any = made("Random", {"x": dimension("uniform", 0, 1), "c": dimension("choice", 1, 2)})
    alone = Random(seed=1)
    alone.update_search_space({"x": dimension("uniform", 0, 1), "c": dimension("choice", 1, 2)})
    assert [tuner.propose(number) for number in range(5)] == [alone.propose(number) for number in range(5)]
    assert not tuner.withdraws
