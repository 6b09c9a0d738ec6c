"""The keys of results: which one counts where none is asked for, and what is better of each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.filled import Filled, with_goals

pytestmark = pytest.mark.unit

#: Of each trial: acc and ms.
_RESULTS = ((0.5, 20), (0.9, 30), (0.7, 10))


@pytest.fixture
def with_objectives(experiment: Filled) -> Filled:
    with_goals(experiment, {"acc": "maximize", "ms": "minimize"})
    for acc, ms in _RESULTS:
        experiment.add({"rate": acc}, final={"acc": acc, "ms": ms, "size": ms})
    return experiment


def best(answer: dict[str, Any]) -> float:
    return float(answer["best"]["value"][-1])


def test_of_each_objective_the_best_is_what_its_direction_says(with_objectives: Filled) -> None:
    asked = with_objectives.asked
    assert best(asked("results", "key=acc")) == 0.9 and best(asked("results", "key=ms")) == 10
    assert asked("results", "key=ms")["direction"] == "minimize"
    assert best(asked("results", "key=ms&direction=maximize")) == 30, "what is asked for counts first"
    assert {row["number"]: row["rank"] for row in asked("trials", "key=ms")["rows"]} == {2: 1, 0: 2, 1: 3}
    assert asked("parallel", "key=ms")["lines"]["number"] == [1, 0, 2], "the best is last"


def test_columns_tell_the_direction_of_each_key(with_objectives: Filled) -> None:
    answer = with_objectives.asked("columns", "")
    told = {key["name"]: (key["direction"], key["count"]) for key in answer["keys"]}
    assert told == {"acc": ("maximize", 3), "ms": ("minimize", 3), "size": ("maximize", 3)}
    assert next(iter(told)) == "acc" == answer["key"] and answer["direction"] == "maximize"


def test_without_a_key_the_first_objective_is_the_result(with_objectives: Filled) -> None:
    answer = with_objectives.asked("results", "")
    assert (answer["key"], answer["shown"], best(answer)) == ("acc", 3, 0.9)
    rows = with_objectives.asked("trials", "sort=-result")["rows"]
    assert [(row["number"], row["result"]) for row in rows] == [(1, 0.9), (2, 0.7), (0, 0.5)]
    assert with_objectives.asked("results", "key=default")["shown"] == 0


def test_unreported_objective_is_key_without_values(experiment: Filled) -> None:
    with_goals(experiment, {"acc": "maximize", "ms": "minimize"})
    experiment.add(final=0.5)
    assert experiment.asked("results", "")["points"]["number"] == []
    told = {key["name"]: key["count"] for key in experiment.asked("columns", "")["keys"]}
    assert told == {"acc": 0, "ms": 0, "default": 1}


def test_without_objectives_the_default_is_the_result(experiment: Filled) -> None:
    experiment.add(final={"default": 1.5, "acc": 0.5})
    assert experiment.asked("results", "")["key"] == "default" == experiment.asked("columns", "")["key"]
    assert experiment.asked("trials", "")["rows"][0]["result"] == 1.5


def test_curves_are_of_the_first_objective_or_of_plain_numbers(experiment: Filled) -> None:
    with_goals(experiment, {"acc": "maximize", "ms": "minimize"})
    experiment.add(curve=[{"acc": 0.1, "ms": 9}, 0.2], final={"acc": 0.2, "ms": 8})
    (curve,) = experiment.asked("curves", "")["curves"]
    assert curve["y"] == [0.1, 0.2]
    (curve,) = experiment.asked("curves", "key=ms")["curves"]
    assert curve["y"] == [9, None], "a plain number is not said to be any other entry"
