"""Batch: the listed sets, each once, in their order."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.domain.errors import InvalidInput
from nni_manager.tuners.batch import Batch
from nni_manager.tuners.contract import NoMoreProposals, Pending
from nni_manager.tuners.testing import Space, TunerContract, dimension, result

pytestmark = pytest.mark.unit


def listing(*sets: object) -> Space:
    return {"sets": dimension("choice", *sets)}


class TestBatch(TunerContract):
    proposals = 20

    def make(self) -> Batch:
        return Batch()

    def spaces(self) -> dict[str, Space]:
        sets: list[dict[str, Any]] = [{"x": number, "deep": {"y": [number]}} for number in range(30)]
        return {"sets": listing(*sets), "branches": listing(*({"_name": str(n), "lr": n / 7} for n in range(30)))}

    def another_space(self) -> Space:
        return listing({"z": 1}, {"z": 2})

    def contains(self, space: Space, parameters: object) -> bool:
        return parameters in space["sets"]["_value"]  # type: ignore[index]


def new(*sets: object) -> Batch:
    tuner = Batch()
    tuner.update_search_space(listing(*sets))
    return tuner


def left(tuner: Batch) -> list[object]:
    batch = tuner.propose_many(range(100, 200))
    assert batch.exhausted
    return [parameters for _, parameters in batch.proposals]


def test_the_sets_come_in_their_order_and_then_no_more() -> None:
    tuner = new({"x": 0, "y": 1}, {"x": 1}, "a text", {"x": 1})
    assert left(tuner) == [{"x": 0, "y": 1}, {"x": 1}, "a text", {"x": 1}]
    with pytest.raises(NoMoreProposals, match="for ever"):
        tuner.propose(200)


def test_restarted_tuner_skips_sets_of_known_trials() -> None:
    tuner = new(1, 2, 1, 3, 4, 1)
    history = [result(0, 1, 0.5), result(1, 2, None)]
    tuner.restore(history=history, unfinished=[Pending(parameter_id=4, parameters=4, trial_id="d")], imported=[])
    assert left(tuner) == [1, 3, 1]


def test_own_results_change_nothing() -> None:
    tuner = new(1, 1, 2)
    assert tuner.propose(0) == 1
    tuner.learn(result(0, 1, 3.0))
    assert left(tuner) == [1, 2]


def test_longer_list_continues_after_proposed_sets() -> None:
    tuner = new(1, 2)
    tuner.propose(0)
    tuner.update_search_space(listing(1, 2, 3))
    assert left(tuner) == [2, 3]


def test_set_with_imported_result_is_skipped() -> None:
    tuner = new({"x": 1}, {"x": 2}, {"x": 3})
    tuner.import_data([{"parameter": {"x": 2}, "value": 0}, {"parameter": {"x": 3}, "value": None}])
    assert left(tuner) == [{"x": 1}, {"x": 3}]


@pytest.mark.parametrize(
    "space",
    [
        {},
        {"x": dimension("uniform", 0, 1)},
        {"a": dimension("choice", 1), "b": dimension("choice", 2)},
        {"a": dimension("choice")},
        {"a": {"_type": "choice", "_value": "text"}},
        [1],
    ],
)
def test_another_search_space_is_refused(space: object) -> None:
    tuner = new(1)
    with pytest.raises(InvalidInput, match="one choice that lists whole sets"):
        tuner.update_search_space(space)
    assert left(tuner) == [1], "the one before is kept"


def test_withdrawn_sets_come_again_in_their_order() -> None:
    tuner = new(1, 2, 3, 2)
    tuner.propose_many(range(4))
    tuner.withdraw([1, 2])
    assert left(tuner) == [3, 2]
