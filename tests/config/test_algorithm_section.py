"""Tuners and assessors: names, arguments, and users' own classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from nni_manager.config.experiment_file import from_canonical
from nni_manager.config.sections.algorithm_section import arguments_model
from nni_manager.config.sections.model_fields import fields_of, models_in
from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.domain.errors import InvalidInput, Problem
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.results import direction
from nni_manager.domain.results.direction import Direction
from nni_manager.tuners import registry
from nni_manager.tuners.testing import dimension, run

pytestmark = pytest.mark.unit

Load = Callable[..., ExperimentSpec]
Refusals = Callable[..., list[Problem]]

TPE_ARGS = {
    "constant_liar_type": "mean",
    "n_startup_jobs": 0,
    "n_ei_candidates": 1,
    "linear_forgetting": 25,
    "prior_weight": 1.0,
    "gamma": 0.25,
}

#: Arguments of TPE in NNI before 2.6 → the value of `constant_liar_type` today.
OLD: list[tuple[dict[str, Any], str | None]] = [
    ({"parallel_optimize": False}, None),
    ({"parallel_optimize": True}, "best"),
    ({"parallel_optimize": True, "constant_liar_type": "max"}, "worst"),
    ({"parallel_optimize": True, "constant_liar_type": "max", "optimize_mode": "maximize"}, "best"),
    ({"parallel_optimize": True, "constant_liar_type": "min", "optimize_mode": "maximize"}, "worst"),
    ({"parallel_optimize": True, "constant_liar_type": "mean", "optimize_mode": "maximize"}, "mean"),
    ({"constant_liar_type": "mean"}, None),
]


@pytest.mark.parametrize(("given", "liar"), OLD, ids=range(len(OLD)))
def test_old_arguments_of_tpe(load_with: Load, given: dict[str, Any], liar: str | None) -> None:
    spec = load_with(tuner={"name": "tpe", "classArgs": given})
    mode = {"optimize_mode": given["optimize_mode"]} if "optimize_mode" in given else {}
    assert spec.tuner.class_args == {**mode, "tpe_args": {"constant_liar_type": liar}}
    warned = [one for one in spec.warnings if one.code == "OLD_NAME"]
    assert {one.field for one in warned} == {f"tuner.classArgs.{name}" for name in given if name != "optimize_mode"}
    assert warned[0].message.endswith(f"write tpe_args: {{constant_liar_type: {liar or 'null'}}}")


@pytest.mark.parametrize(
    "given",
    [
        {"parallel_optimize": "yes"},
        {"parallel_optimize": True, "constant_liar_type": "best"},
        {"parallel_optimize": True, "tpe_args": {"gamma": 0.5}},
    ],
)
def test_old_arguments_that_are_not_clear_are_refused(refusals: Refusals, given: dict[str, Any]) -> None:
    assert {"tuner.classArgs.parallel_optimize"} <= {
        problem.field for problem in refusals(tuner={"name": "TPE", "classArgs": given})
    }


GOOD: list[tuple[str, dict[str, Any], AlgorithmSpec]] = [
    ("tuner", {"name": "tpe"}, AlgorithmSpec(name="TPE")),
    ("tuner", {"Name": "RANDOM", "class_args": None}, AlgorithmSpec(name="Random")),
    (
        "tuner",
        {"name": "random", "classArgs": {"seed": 3, "optimize_mode": "maximize"}},
        AlgorithmSpec(name="Random", class_args={"seed": 3, "optimize_mode": "maximize"}),
    ),
    (
        "tuner",
        {"name": "gridsearch", "classArgs": {"optimize_mode": "minimize"}},
        AlgorithmSpec(name="GridSearch", class_args={"optimize_mode": "minimize"}),
    ),
    (
        "tuner",
        {"name": "TPE", "classArgs": {"tpe_args": TPE_ARGS, "seed": None}},
        AlgorithmSpec(name="TPE", class_args={"tpe_args": TPE_ARGS}),
    ),
    (
        "assessor",
        {"name": "MedianStop", "classArgs": {"start_step": 0}},
        AlgorithmSpec(name="Medianstop", class_args={"start_step": 0}),
    ),
]

BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("tuner", {}, "", "needs either name (a built-in tuner) or className (your own); neither is set"),
    ("tuner", {"name": "TPE", "className": "a.B"}, "", "both are set; keep one"),
    ("tuner", {"name": "TPE", "codeDirectory": "."}, "codeDirectory", "belongs to className"),
    ("tuner", {"name": "Rendom"}, "name", "cannot find tuner 'Rendom'; did you mean Random?"),
    ("tuner", {"name": "Bumblebee"}, "name", "cannot find tuner 'Bumblebee'; use Random or GridSearch or TPE"),
    ("tuner", {"name": "ppo"}, "name", "the tuner ppo is not in this version yet"),
    ("tuner", {"name": "NetworkMorphism"}, "name", "not in this version yet"),
    (
        "tuner",
        {"name": "BOHB", "classArgs": {"min_budget": 9}},
        "name",
        "min_budget: 9 is greater",
    ),
    (
        "tuner",
        {"name": "Hyperband", "classArgs": {"exec_mode": "fast"}},
        "classArgs.exec_mode",
        "'serial'",
    ),
    ("advisor", {"name": "Hyperband", "classArgs": {"R": 0}}, "classArgs.R", "must be at least 1"),
    ("tuner", {"name": "Medianstop"}, "name", "cannot find tuner 'Medianstop': it is an algorithm of assessor. "),
    ("tuner", {"name": 5}, "name", "must be text"),
    ("tuner", {"nane": "TPE", "name": "TPE"}, "nane", "did you mean name?"),
    ("tuner", {"name": "TPE", "classArgs": []}, "classArgs", "must be a mapping"),
    (
        "tuner",
        {"name": "TPE", "classArgs": {"optimize_mode": "max"}},
        "classArgs.optimize_mode",
        "must be 'maximize' or 'minimize'",
    ),
    ("tuner", {"name": "TPE", "classArgs": {"seed": True}}, "classArgs.seed", "must be a whole number"),
    (
        "tuner",
        {"name": "TPE", "classArgs": {"gama": 1}},
        "classArgs.gama",
        "TPE does not have this argument; its arguments:",
    ),
    (
        "tuner",
        {"name": "TPE", "classArgs": {"tpe_args": 1}},
        "classArgs.tpe_args",
        "must be a mapping of names to values, not a whole number",
    ),
    ("tuner", {"name": "TPE", "classArgs": {"tpe_args": {"gama": 1}}}, "classArgs.tpe_args.gama", "mean gamma?"),
    ("tuner", {"name": "TPE", "classArgs": {"tpe_args": {"gamma": 0}}}, "classArgs.tpe_args.gamma", "above 0"),
    (
        "tuner",
        {"name": "TPE", "classArgs": {"tpe_args": {"n_ei_candidates": 0}}},
        "classArgs.tpe_args.n_ei_candidates",
        "at least 1",
    ),
    *(
        ("tuner", {"name": "TPE", "classArgs": {"tpe_args": {name: value}}}, f"classArgs.tpe_args.{name}", words)
        for name, value, words in [
            ("n_startup", 3, "did you mean n_startup_jobs?"),
            ("n_startup_jobs", -1, "must be at least 0, not -1"),
            ("linear_forgetting", 0, "must be at least 1, not 0"),
            ("n_ei_candidates", 2.5, "must be a whole number, not a fraction"),
            ("gamma", float("nan"), "must be a finite number"),
            ("prior_weight", True, "must be a number, not true or false"),
            ("constant_liar_type", "min", "must be 'best', 'worst' or 'mean', not 'min'"),
            ("constant_liar_type", [], "must be 'best', 'worst' or 'mean', not a list"),
        ]
    ),
    ("tuner", {"name": "Random", "classArgs": {"seed": "x"}}, "classArgs.seed", "must be a whole number, not text"),
    (
        "tuner",
        {"name": "GridSearch", "classArgs": {"step": 1}},
        "classArgs.step",
        "GridSearch does not have this argument",
    ),
    ("tuner", {"className": "BeeTuner"}, "className", "must name a module and a class"),
    ("tuner", {"className": "a b.C"}, "className", "must name a module and a class"),
    ("tuner", {"className": "a.2C"}, "className", "must name a module and a class"),
    ("tuner", {"className": "a.B-C"}, "className", "must name a module and a class"),
    ("tuner", {"className": "a.B", "codeDirectory": "/\0"}, "codeDirectory", "holds a NUL character"),
    ("tuner", {"className": "a.B", "codeDirectory": "no/hive"}, "codeDirectory", "cannot find folder"),
    ("assessor", {"name": "Curvefit"}, "name", "cannot find assessor 'Curvefit'; did you mean Curvefitting?"),
    (
        "assessor",
        {"name": "TPE"},
        "name",
        "cannot find assessor 'TPE': it is an algorithm of tuner. Write tuner: {name: TPE}",
    ),
    ("assessor", {"name": "Medianstop", "classArgs": {"start_step": -1}}, "classArgs.start_step", "at least 0"),
    ("assessor", {"name": "Medianstop", "classArgs": {"start_step": 1.5}}, "classArgs.start_step", "a whole number"),
    ("assessor", {"name": "Medianstop", "classArgs": {"start_step": True}}, "classArgs.start_step", "a whole number"),
    ("assessor", {"name": "Medianstop", "classArgs": {"optimize_mode": "max"}}, "classArgs.optimize_mode", "maximize"),
    ("advisor", {"name": "Medianstop"}, "name", "it is an algorithm of assessor"),
]


@pytest.mark.parametrize(("role", "section", "expected"), GOOD)
def test_good_algorithms(load_with: Load, role: str, section: dict[str, Any], expected: AlgorithmSpec) -> None:
    assert getattr(load_with(**{role: section}), role) == expected


@pytest.mark.parametrize(("role", "section", "field", "words"), BAD)
def test_bad_algorithms(refusals: Refusals, role: str, section: dict[str, Any], field: str, words: str) -> None:
    fields = {"tuner": None, role: section} if role == "advisor" else {role: section}
    [problem] = refusals(**fields)
    assert problem.field == ".".join(filter(None, (role, field)))
    assert words in problem.message
    assert problem.line > 0


PROBES = (None, 0, 1, 5e-324, 1e300, *range(2, 5), "maximize", "minimize", "best", "worst", "mean")


def accepted(model: type[BaseModel]) -> Iterator[dict[str, Any]]:
    """One argument each, with those probes that the model accepts."""
    for name, field in fields_of(model).items():
        for inner in models_in(field.annotation):
            yield from ({name: arguments} for arguments in accepted(inner))
        for raw in PROBES:
            with suppress(ValidationError):
                model.model_validate({name: raw})
                yield {name: raw}


#: Arguments that a tuner requires in addition to each argument.
BESIDE: dict[str, dict[str, Any]] = {
    "BOHB": {"max_budget": 9},
    "GPTuner": {"selection_num_warm_up": 200, "selection_num_starting_points": 10},  # less to compute
}
SPACE = {"x": dimension("uniform", 0, 1), "c": dimension("choice", 1, 2)}
OWN_SPACES: dict[str, Any] = {"Batch": {"sets": dimension("choice", *({"x": number} for number in range(22)))}}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [(one.name, arguments) for one in registry.CATALOGUE.built_in for arguments in accepted(arguments_model(one))],
)
def test_accepted_arguments_make_a_tuner_that_proposes(load_with: Load, name: str, arguments: dict[str, Any]) -> None:
    space = OWN_SPACES.get(name, SPACE)
    needed = dict.fromkeys(registry.CATALOGUE.find(name).required, "maximize")
    given = {key: value for key, value in arguments.items() if value is not None or key not in needed}
    section = {"name": name, "classArgs": needed | BESIDE.get(name, {}) | given}
    more = {"objectives": {"default": "maximize"}} if registry.CATALOGUE.find(name).needs_objectives else {}
    tuner = registry.create(load_with(tuner=section, searchSpace=space, **more).tuner)
    tuner.update_search_space(space)
    proposals = 11 if name in ("Auto", "GPTuner", "SMAC") else 22
    assert len(run(tuner, proposals)) == proposals  # the last ones go by results


@pytest.mark.parametrize(
    ("name", "space", "words"),
    [
        ("Batch", SPACE, "Batch takes one choice that lists whole sets of parameters"),
        ("BOHB", {"TRIAL_BUDGET": dimension("choice", 1)}, "this name is reserved for"),
    ],
)
def test_a_space_that_a_tuner_cannot_search_is_refused(refusals: Refusals, name: str, space: Any, words: str) -> None:
    [problem] = refusals(tuner={"name": name}, searchSpace=space)
    assert problem.field == "searchSpace" and words in problem.message and problem.line > 0


@pytest.mark.parametrize("section", ["tuner", "advisor"])
@pytest.mark.parametrize("name", ["Hyperband", "bohb", "BatchTuner"])
def test_advisors_of_nni_are_tuners(load_with: Load, section: str, name: str) -> None:
    fields: dict[str, Any] = {"tuner": None, section: {"name": name}, "searchSpace": OWN_SPACES["Batch"]}
    assert load_with(**fields).tuner.name == registry.CATALOGUE.find(name).name


@pytest.mark.parametrize(
    ("name", "class_name", "arguments"),
    [
        ("PBTTuner", "nni.algorithms.hpo.pbt_tuner.PBTTuner", {"a": 1}),
        ("metis", "nni.algorithms.hpo.metis_tuner.MetisTuner", {"a": 1}),
        ("TPE_legacy", "nni.algorithms.hpo.hyperopt_tuner.HyperoptTuner", {"a": 1, "algorithm_name": "tpe"}),
    ],
)
def test_names_of_nnis_own_classes_become_them(
    load_with: Load, name: str, class_name: str, arguments: dict[str, Any]
) -> None:
    spec = load_with(tuner={"name": name, "classArgs": {"a": 1}})
    assert spec.tuner == AlgorithmSpec(class_name=class_name, class_args=arguments)
    assert from_canonical(spec.canonical).tuner == spec.tuner


def test_user_class_defaults_to_the_folder_of_the_config(load_with: Load, tmp_path: Path) -> None:
    tuner = load_with(tuner={"className": "hive.bees.BeeTuner", "classArgs": {"any": [1, None]}}).tuner
    assert tuner == AlgorithmSpec(
        class_name="hive.bees.BeeTuner", code_directory=str(tmp_path.resolve()), class_args={"any": [1, None]}
    )


@pytest.mark.parametrize("name", ["my-tuner.Own", "2nd_tuner.Own", "3-stage.v-2.Own", "pool-1.Own"])
def test_class_in_a_file_with_hyphen_or_digit_is_taken(load_with: Load, name: str) -> None:
    assert load_with(tuner={"className": name}).tuner.class_name == name
    assert load_with(assessor={"className": name}).assessor.class_name == name


def test_stored_experiment_may_name_unknown_algorithm(load_with: Load) -> None:
    canonical = {**load_with().canonical, "tuner": {"name": "PPO", "classArgs": {"lam": 9}}}
    assert from_canonical(canonical).tuner == AlgorithmSpec(name="PPO", class_args={"lam": 9})


@pytest.mark.parametrize("name", ["GPTuner", "gp", "SMAC"])
def test_a_tuner_whose_packages_are_missing_is_refused(
    refusals: Refusals, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("nni_manager.tuners.models.model_search.find_spec", lambda name: None)
    [problem] = refusals(tuner={"name": name})
    assert problem.field == "tuner.name" and problem.line > 0
    assert "scikit-learn, which is not installed" in problem.message and "nni-manager[gp]" in problem.message


def test_a_space_that_the_tuner_refuses_as_a_whole_is_refused(
    refusals: Refusals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(tuner: object, space: object) -> None:
        raise InvalidInput("searchSpace: this tuner takes one choice and nothing else")

    monkeypatch.setattr("nni_manager.tuners.random.Random.update_search_space", refuse)
    [problem] = refusals(tuner={"name": "Random"})
    assert (problem.field, problem.message) == ("searchSpace", "this tuner takes one choice and nothing else")


@pytest.mark.parametrize("mode", ["maximize", "minimize"])
def test_auto_without_tuner_searches_in_given_direction(load_with: Load, mode: str) -> None:
    spec = load_with(tuner=None, optimizeMode=mode)
    assert spec.tuner == AlgorithmSpec(name="Auto", class_args={"optimize_mode": mode})
    assert direction.find(spec.canonical) == Direction(mode=OptimizeMode(mode))
    assert "optimizeMode" not in spec.canonical
    assert from_canonical(spec.canonical).tuner == spec.tuner


def test_without_a_tuner_and_a_direction_both_are_offered(refusals: Refusals) -> None:
    [problem] = refusals(tuner=None)
    assert problem.field == "tuner"
    assert problem.message == (
        "is required and not set; add for example tuner: {name: TPE}, or, for Auto, optimizeMode: maximize or minimize"
    )


@pytest.mark.parametrize("tuner", [{"name": "TPE"}, {"name": "Auto", "classArgs": {"optimize_mode": "minimize"}}])
def test_optimize_mode_with_tuner_is_refused(refusals: Refusals, tuner: dict[str, Any]) -> None:
    [problem] = refusals(tuner=tuner, optimizeMode="maximize")
    assert problem.field == "optimizeMode"
    assert problem.message == "replaces tuner, and tuner is set, too; write tuner.classArgs.optimize_mode"


@pytest.mark.parametrize("arguments", [None, {}, {"optimize_mode": None}, {"seed": 1}])
def test_auto_has_no_direction_of_its_own(refusals: Refusals, arguments: dict[str, Any] | None) -> None:
    [problem] = refusals(tuner={"name": "Auto", "classArgs": arguments})
    assert problem.field == "tuner.classArgs.optimize_mode"
    assert problem.message == "is required with Auto; write maximize or minimize"


def test_objectives_without_a_tuner_are_searched_by_tpe(load_with: Load) -> None:
    assert load_with(tuner=None, objectives={"accuracy": "maximize"}).tuner.name == "TPE"
