"""`podTemplate` is a mapping, or a YAML file with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from nni_manager.config.experiment_file import from_canonical
from nni_manager.domain.errors import Problem
from nni_manager.domain.experiment import ExperimentSpec

pytestmark = pytest.mark.unit

Load = Callable[..., ExperimentSpec]
Refusals = Callable[..., list[Problem]]

_TEMPLATE: dict[str, Any] = {"spec": {"schedulerName": "batch", "containers": [{"args": ["{your brace}"]}]}}


def section(template: object, platform: str = "kubernetes") -> dict[str, Any]:
    return {"platform": platform, "podTemplate": template}


@pytest.mark.parametrize("platform", ["kubernetes", "adl"])
def test_pod_template_in_a_file_equals_an_inline_one(load_with: Load, tmp_path: Path, platform: str) -> None:
    (tmp_path / "pod.yml").write_text(yaml.safe_dump(_TEMPLATE), "utf-8")
    inline = load_with(trainingService=section(_TEMPLATE, platform))
    from_file = load_with(trainingService=section("pod.yml", platform))
    assert from_file.canonical == inline.canonical


def test_stored_config_does_not_need_the_file(load_with: Load, tmp_path: Path) -> None:
    file = tmp_path / "pod.yml"
    file.write_text(yaml.safe_dump(_TEMPLATE), "utf-8")
    stored = load_with(trainingService=section("pod.yml")).canonical
    file.unlink()
    assert from_canonical(stored).canonical == stored


def test_literal_secret_in_the_file_is_warned_of(load_with: Load, tmp_path: Path) -> None:
    container = {"name": "trial", "env": [{"name": "WANDB_API_KEY", "value": "hunter22"}]}
    (tmp_path / "pod.yml").write_text(yaml.safe_dump({"spec": {"containers": [container]}}), "utf-8")
    warnings = load_with(trainingService=section("pod.yml")).warnings
    [found] = [one for one in warnings if one.code == "LITERAL_SECRET"]
    assert found.field == "trainingService.podTemplate.spec.containers[0].env[0].value"
    assert "hunter22" not in str(found)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot find file"),
        ("- a\n- b\n", "must have a mapping, not a list"),
        ("spec: {containers: [\n", "cannot be read"),
        ("spec: {}\nspec: {}\n", "line 2"),
        ("", "must have a mapping"),
    ],
)
def test_unusable_file_is_refused(refusals: Refusals, tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "pod.yml").write_text(content, "utf-8")
    [problem] = refusals(trainingService=section("pod.yml"))
    assert problem.field == "trainingService.podTemplate"
    assert "pod.yml" in problem.message and words in problem.message


def test_pod_template_that_is_a_list_is_refused(refusals: Refusals) -> None:
    [problem] = refusals(trainingService=section([{"spec": {}}]))
    assert (problem.field, problem.message) == (
        "trainingService.podTemplate",
        "must be a mapping of names to values, not a list",
    )
