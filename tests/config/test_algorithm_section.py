"""Tuners and assessors: names, arguments, and users' own classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from nni_manager.config.algorithms import arguments_model
from nni_manager.config.experiment_file import from_canonical
from nni_manager.config.sections.model_fields import fields_of, models_in
from nni_manager.domain.errors import Problem
from nni_manager.domain.experiment import AlgorithmSpec, ExperimentSpec
from nni_manager.store import stored_config
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
    ("tuner", {}, "", "needs either name (a built-in tuner) or className (your own); none is set"),
    ("tuner", {"name": "TPE", "className": "a.B"}, "", "both are set; keep one"),
    ("tuner", {"name": "TPE", "codeDirectory": "."}, "codeDirectory", "belongs to className"),
    ("tuner", {"name": "Rendom"}, "name", "there is no tuner 'Rendom'; did you mean Random?"),
    ("tuner", {"name": "Bumblebee"}, "name", "there is no tuner 'Bumblebee'; use Random or GridSearch or TPE"),
    ("tuner", {"name": "evolution"}, "name", "the tuner evolution is not in this version yet"),
    ("tuner", {"name": "BOHB"}, "name", "not in this version yet"),
    ("tuner", {"name": "Medianstop"}, "name", "there is no tuner 'Medianstop', it belongs to assessor: "),
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
    ("tuner", {"name": "TPE", "classArgs": {"gama": 1}}, "classArgs.gama", "TPE has no such argument; it takes"),
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
    ("tuner", {"name": "GridSearch", "classArgs": {"step": 1}}, "classArgs.step", "GridSearch has no such argument"),
    ("tuner", {"className": "BeeTuner"}, "className", "must name a module and a class"),
    ("tuner", {"className": "a b.C"}, "className", "must name a module and a class"),
    ("tuner", {"className": "a.B", "codeDirectory": "/\0"}, "codeDirectory", "holds a NUL character"),
    ("tuner", {"className": "a.B", "codeDirectory": "no/hive"}, "codeDirectory", "there is no folder"),
    ("assessor", {"name": "Curvefitting"}, "name", "the assessor Curvefitting is not in this version yet"),
    ("assessor", {"name": "TPE"}, "name", "there is no assessor 'TPE', it belongs to tuner: write tuner: {name: TPE}"),
    ("assessor", {"name": "Medianstop", "classArgs": {"start_step": -1}}, "classArgs.start_step", "at least 0"),
    ("assessor", {"name": "Medianstop", "classArgs": {"start_step": 1.5}}, "classArgs.start_step", "a whole number"),
    ("assessor", {"name": "Medianstop", "classArgs": {"start_step": True}}, "classArgs.start_step", "a whole number"),
    ("assessor", {"name": "Medianstop", "classArgs": {"optimize_mode": "max"}}, "classArgs.optimize_mode", "maximize"),
    ("advisor", {"name": "Hyperband"}, "name", "remove advisor, and write for example tuner: {name: TPE}"),
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


@pytest.mark.parametrize(
    ("name", "arguments"),
    [(one.name, arguments) for one in registry.CATALOGUE.built_in for arguments in accepted(arguments_model(one))],
)
def test_accepted_arguments_make_a_tuner_that_proposes(load_with: Load, name: str, arguments: dict[str, Any]) -> None:
    arguments = dict.fromkeys(registry.find(name).required, "maximize") | {
        key: value for key, value in arguments.items() if value is not None
    }
    tuner = registry.create(load_with(tuner={"name": name, "classArgs": arguments}).tuner)
    tuner.update_search_space({"x": dimension("uniform", 0, 1), "c": dimension("choice", 1, 2)})
    assert len(run(tuner, 22)) == 22  # the last ones go by results


def test_user_class_defaults_to_the_folder_of_the_config(load_with: Load, tmp_path: Path) -> None:
    tuner = load_with(tuner={"className": "hive.bees.BeeTuner", "classArgs": {"any": [1, None]}}).tuner
    assert tuner == AlgorithmSpec(
        class_name="hive.bees.BeeTuner", code_directory=str(tmp_path.resolve()), class_args={"any": [1, None]}
    )


def test_a_stored_experiment_may_name_an_algorithm_of_another_release(load_with: Load) -> None:
    canonical = {**load_with().canonical, "tuner": {"name": "Evolution", "classArgs": {"population_size": 9}}}
    assert from_canonical(canonical).tuner == AlgorithmSpec(name="Evolution", class_args={"population_size": 9})


@pytest.mark.parametrize("mode", ["maximize", "minimize"])
def test_without_a_tuner_auto_searches_in_the_direction_that_is_written(load_with: Load, mode: str) -> None:
    spec = load_with(tuner=None, optimizeMode=mode)
    assert spec.tuner == AlgorithmSpec(name="Auto", class_args={"optimize_mode": mode})
    assert stored_config.maximizes(spec.canonical) == (mode == "maximize")
    assert "optimizeMode" not in spec.canonical
    assert from_canonical(spec.canonical).tuner == spec.tuner


def test_without_a_tuner_and_a_direction_both_are_offered(refusals: Refusals) -> None:
    [problem] = refusals(tuner=None)
    assert problem.field == "tuner"
    assert problem.message == (
        "is required and not set; add for example tuner: {name: TPE}, or, for Auto, optimizeMode: maximize or minimize"
    )


@pytest.mark.parametrize("tuner", [{"name": "TPE"}, {"name": "Auto", "classArgs": {"optimize_mode": "minimize"}}])
def test_a_direction_beside_a_tuner_is_refused(refusals: Refusals, tuner: dict[str, Any]) -> None:
    [problem] = refusals(tuner=tuner, optimizeMode="maximize")
    assert problem.field == "optimizeMode"
    assert problem.message == "stands instead of a tuner, and one is given; write tuner.classArgs.optimize_mode"


@pytest.mark.parametrize("arguments", [None, {}, {"optimize_mode": None}, {"seed": 1}])
def test_auto_has_no_direction_of_its_own(refusals: Refusals, arguments: dict[str, Any] | None) -> None:
    [problem] = refusals(tuner={"name": "Auto", "classArgs": arguments})
    assert problem.field == "tuner.classArgs.optimize_mode"
    assert problem.message == "is required with Auto; write maximize or minimize"
