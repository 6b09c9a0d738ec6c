"""The direction of an experiment: one rule, with NNI's defaults."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.results.direction import NOT_SET, Direction, find, must_say, warnings
from nni_manager.tuners.registry import CATALOGUE

pytestmark = pytest.mark.unit

MINIMIZE = {"classArgs": {"optimize_mode": "minimize"}}
MAXIMIZE = {"classArgs": {"optimize_mode": "maximize"}}


NNI = "nni.algorithms.hpo."


@pytest.mark.parametrize(
    ("config", "mode", "note"),
    [
        ({"tuner": {"name": "TPE"}}, "minimize", "default of TPE"),
        ({"tuner": {"name": "tpe", "classArgs": {"seed": 1}}}, "minimize", "default of tpe"),
        ({"tuner": {"name": "Anneal"}}, "minimize", "default of Anneal"),
        ({"tuner": {"name": "TPE_legacy"}}, "minimize", "default of TPE_legacy"),
        ({"tuner": {"name": "TPE", **MAXIMIZE}}, "maximize", ""),
        ({"tuner": {"name": "Evolution"}}, "maximize", "default of Evolution"),
        ({"advisor": {"name": "Hyperband"}}, "maximize", "default of Hyperband"),
        ({"tuner": {"name": "Random"}}, "maximize", NOT_SET),
        ({"tuner": {"name": "Random", **MINIMIZE}}, "minimize", ""),
        ({"tuner": {"className": "mine.Mine"}}, "maximize", NOT_SET),
        ({"tuner": {"className": "mine.Mine", **MINIMIZE}}, "minimize", ""),
        ({"tuner": {"className": f"{NNI}tpe_tuner.TpeTuner"}}, "minimize", "default of TpeTuner"),
        ({"tuner": {"className": f"{NNI}metis_tuner.MetisTuner"}}, "maximize", "default of MetisTuner"),
        ({"tuner": {"className": f"{NNI}random_tuner.RandomTuner"}}, "maximize", NOT_SET),
        ({"tuner": {"name": "installed-by-a-package"}}, "maximize", NOT_SET),
        ({"advisor": {"name": "BOHB", **MINIMIZE}}, "minimize", ""),
        ({"objectives": {"loss": "minimize", "f1": "maximize"}}, "minimize", ""),
        ({}, "maximize", NOT_SET),
    ],
)
def test_direction_is_the_stated_one_or_a_default(config: dict[str, Any], mode: str, note: str) -> None:
    assert find(config) == Direction(mode=OptimizeMode(mode), note=note)
    assert bool(warnings(config)) is bool(note)


@pytest.mark.parametrize("name", ["Random", "GridSearch", "Batch", "BatchTuner"])
def test_assessor_states_direction_of_tuner_without_results(name: str) -> None:
    assessor = {"name": "Medianstop", **MINIMIZE}
    assert find({"tuner": {"name": name}, "assessor": assessor}) == Direction(mode=OptimizeMode.MINIMIZE)
    assert find({"tuner": {"name": name, **MAXIMIZE}, "assessor": assessor}) == Direction(mode=OptimizeMode.MAXIMIZE)
    assert find({"tuner": {"name": "Evolution"}, "assessor": assessor}).maximizes


def test_default_of_users_class_counts_before_assessor() -> None:
    config = {"tuner": {"className": "mine.Mine"}, "assessor": {"name": "Medianstop", **MAXIMIZE}}
    assert find(config, "minimize") == Direction(mode=OptimizeMode.MINIMIZE, note="default of Mine")
    assert find(config) == Direction(mode=OptimizeMode.MAXIMIZE)
    assert find({"tuner": {"className": "mine.Mine", **MAXIMIZE}}, "minimize").maximizes


def test_warning_names_field_meaning_and_step() -> None:
    [built_in] = warnings({"tuner": {"name": "TPE"}}, file="exp.yml")
    assert str(built_in) == (
        "exp.yml: tuner.classArgs.optimize_mode: not set, so the lowest result counts as best (default of TPE); set"
        " maximize or minimize"
    )
    [inspected] = warnings({"tuner": {"className": "mine.Mine"}}, "minimize")
    assert inspected.message.endswith("lowest result counts as best (default of Mine); set maximize or minimize")
    [own] = warnings({"advisor": {"className": "mine.Mine"}})
    assert str(own) == (
        "advisor.classArgs.optimize_mode: not set, so the highest result counts as best (direction not set); set"
        " maximize or minimize; add that argument to the class if it is missing"
    )


def test_default_is_the_one_each_tuner_class_has() -> None:
    """A tuner that ignores results has none, and accepts the argument all the same."""
    for algorithm in CATALOGUE.built_in:
        default = inspect.signature(algorithm.load()).parameters.get("optimize_mode")
        if default is None:
            assert algorithm.needs_objectives or "optimize_mode" in algorithm.ignored
            assert find({"tuner": {"name": algorithm.name}}).note == NOT_SET
        elif "optimize_mode" not in algorithm.required:
            for name in (algorithm.name, *algorithm.aliases):
                assert find({"tuner": {"name": name}}).mode == default.default and find({"tuner": {"name": name}}).note


def test_nni_takes_no_arguments_of_some_without_it() -> None:
    assert must_say("Evolution") and must_say("bohb") and must_say("PBTTuner")
    assert not must_say("TPE") and not must_say("Medianstop")
