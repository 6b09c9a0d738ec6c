"""Tuners by name, and the sentences for wrong names and arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.domain.errors import InvalidInput
from nni_manager.tuners import registry
from nni_manager.tuners.contract import Tuner
from nni_manager.tuners.distinct import Distinct
from nni_manager.tuners.grid import GridSearch
from nni_manager.tuners.optuna_tpe import TPE
from nni_manager.tuners.random import Random
from tests.installed import announce
from tests.scheduler.pictures import spec

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("name", "kind"), [("tpe", TPE), ("TPE", TPE), ("random", Random), ("gridsearch", GridSearch)])
def test_built_ins_are_found_in_any_case(name: str, kind: type) -> None:
    tuner = registry.create(AlgorithmSpec(name=name))
    assert type(tuner.inner if isinstance(tuner, Distinct) else tuner) is kind


@pytest.mark.parametrize(
    ("name", "full_name"),
    [("batch", "Batch"), ("BatchTuner", "Batch"), ("hyperband", "Hyperband"), ("BOHB", "BOHB"), ("grid", "GridSearch")],
)
def test_every_alias_of_nni_is_found(name: str, full_name: str) -> None:
    assert registry.CATALOGUE.find(name).name == full_name


@pytest.mark.parametrize(
    ("name", "class_name"),
    [
        ("PBT", "nni.algorithms.hpo.pbt_tuner.PBTTuner"),
        ("pbttuner", "nni.algorithms.hpo.pbt_tuner.PBTTuner"),
        ("MetisTuner", "nni.algorithms.hpo.metis_tuner.MetisTuner"),
        (
            "RegularizedEvolutionTuner",
            "nni.algorithms.hpo.regularized_evolution_tuner.RegularizedEvolutionTuner",
        ),
        ("DNGO", "nni.algorithms.hpo.dngo_tuner.DNGOTuner"),
        ("tpe_legacy", "nni.algorithms.hpo.hyperopt_tuner.HyperoptTuner"),
    ],
)
def test_some_names_stand_for_nnis_own_classes(name: str, class_name: str) -> None:
    found = registry.CATALOGUE.of_nni_called(name)
    assert found is not None and found.class_name == class_name and registry.CATALOGUE.look_up(name) is None


def test_arguments_are_those_of_the_constructor() -> None:
    grid, tpe = registry.CATALOGUE.find("GRIDSEARCH"), registry.CATALOGUE.find("tpe")
    assert (grid.name, grid.arguments) == ("GridSearch", ())
    assert (tpe.name, tpe.arguments) == ("TPE", ("optimize_mode", "seed", "tpe_args"))


@pytest.mark.parametrize(("name", "arguments"), [("Random", {"seed": 1}), ("GridSearch", {})])
def test_optimize_mode_is_accepted_without_effect(name: str, arguments: dict[str, Any]) -> None:
    proposals = []
    for mode in ({}, {"optimize_mode": "minimize"}, {"optimize_mode": "maximize"}):
        tuner = registry.create(AlgorithmSpec(name=name, class_args={**arguments, **mode}))
        tuner.update_search_space({"x": {"_type": "randint", "_value": [0, 100]}})
        proposals.append([tuner.propose(number) for number in range(3)])
    assert proposals[0] == proposals[1] == proposals[2]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Radnom", "cannot find tuner 'Radnom', did you mean Random.*Random, GridSearch, TPE, .*className"),
        ("zzz", "cannot find tuner 'zzz'; use one of"),
        ("NetworkMorphism", "NNI's tuner 'NetworkMorphism' is not available here"),
        ("ppotuner", "not available here"),
        ("", "cannot find tuner ''"),
    ],
)
def test_unknown_names_are_explained(name: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        registry.create(AlgorithmSpec(name=name))


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        (
            "TPE",
            {"sed": 1},
            "classArgs.sed: TPE does not have this argument; its arguments: optimize_mode, seed, tpe_args",
        ),
        ("GridSearch", {"seed": 1}, "classArgs.seed: GridSearch does not have this argument; it takes no arguments"),
    ],
)
def test_wrong_arguments_are_named(name: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        registry.create(AlgorithmSpec(name=name, class_args=arguments))


def test_installed_packages_bring_tuners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = "nni_manager.tuners.random:Random"
    monkeypatch.syspath_prepend(tmp_path)
    announce(tmp_path, "mine", registry.CATALOGUE.group, {"Mine": here, "Odd": "builtins:dict"})
    assert registry.CATALOGUE.find("mine").location == here
    assert isinstance(registry.create(AlgorithmSpec(name="mine", class_args={"seed": 3})), Random)
    with pytest.raises(InvalidInput, match=r"'Odd' is not a .*Tuner"):
        registry.create(AlgorithmSpec(name="Odd"))


def test_continuing_tuners_need_checkpoints() -> None:
    """Of another package's tuner, or a user's class, nothing is known."""
    for algorithm in registry.CATALOGUE.built_in:
        tuner_class: Any = algorithm.load()
        found = spec(tuner=AlgorithmSpec(name=algorithm.name)).may_continue_trials
        assert found is (tuner_class.continues is not Tuner.continues), algorithm.name
    for tuner in (AlgorithmSpec(name="Ladder"), AlgorithmSpec(class_name="ladder.Ladder")):
        assert spec(tuner=tuner).may_continue_trials, tuner
    assert not spec(tuner=AlgorithmSpec()).may_continue_trials
