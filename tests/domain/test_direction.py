"""The direction of an experiment: one rule, with NNI's defaults."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from nni_manager.domain.metrics import OptimizeMode, direction_of, must_say, said_direction
from nni_manager.store.stored_config import maximizes
from nni_manager.tuners.registry import CATALOGUE

pytestmark = pytest.mark.unit

MINIMIZE = {"classArgs": {"optimize_mode": "minimize"}}
MAXIMIZE = {"classArgs": {"optimize_mode": "maximize"}}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"tuner": {"name": "TPE"}}, "minimize"),
        ({"tuner": {"name": "tpe", "classArgs": {"seed": 1}}}, "minimize"),
        ({"tuner": {"name": "Anneal"}}, "minimize"),
        ({"tuner": {"name": "TPE_legacy"}}, "minimize"),
        ({"tuner": {"name": "TPE", **MAXIMIZE}}, "maximize"),
        ({"tuner": {"name": "Evolution"}}, "maximize"),
        ({"tuner": {"name": "Hyperband"}}, "maximize"),
        ({"tuner": {"name": "Random"}}, "maximize"),
        ({"tuner": {"name": "Random", **MINIMIZE}}, "minimize"),
        ({"tuner": {"className": "mine.Mine"}}, "maximize"),
        ({"tuner": {"className": "mine.Mine", **MINIMIZE}}, "minimize"),
        ({"tuner": {"className": "nni.algorithms.hpo.tpe_tuner.TpeTuner"}}, "minimize"),
        ({"advisor": {"name": "BOHB", **MINIMIZE}}, "minimize"),
        ({"advisor": {"name": "BOHB"}}, "maximize"),
        ({}, "maximize"),
    ],
)
def test_the_tuner_says_it_or_nni_s_default_holds(config: dict[str, Any], expected: str) -> None:
    assert direction_of(config) == expected and maximizes(config) is (expected == "maximize")


@pytest.mark.parametrize("name", ["Random", "GridSearch", "Batch", "BatchTuner"])
def test_beside_a_tuner_that_goes_by_no_results_the_assessor_says_it(name: str) -> None:
    assessor = {"name": "Medianstop", **MINIMIZE}
    assert direction_of({"tuner": {"name": name}, "assessor": assessor}) is OptimizeMode.MINIMIZE
    assert direction_of({"tuner": {"name": name, **MAXIMIZE}, "assessor": assessor}) is OptimizeMode.MAXIMIZE
    assert direction_of({"tuner": {"name": "Evolution"}, "assessor": assessor}) is OptimizeMode.MAXIMIZE
    assert said_direction({"tuner": {"name": name}, "assessor": assessor}) is not None
    assert said_direction({"tuner": {"name": name}}) is None


def test_the_default_is_the_one_that_each_tuner_has_itself() -> None:
    """Of those whose class has one; a tuner that goes by no results has none."""
    for algorithm in CATALOGUE.built_in:
        default = inspect.signature(algorithm.load()).parameters.get("optimize_mode")
        if default is not None and "optimize_mode" not in algorithm.required:
            assert direction_of({"tuner": {"name": algorithm.name}}) == default.default, algorithm.name


def test_nni_takes_no_arguments_of_some_without_it() -> None:
    assert must_say("Evolution") and must_say("bohb") and must_say("PBTTuner")
    assert not must_say("TPE") and not must_say("Medianstop")
