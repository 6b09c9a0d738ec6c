"""Secrets that are written out in commands and pod templates are warned of; masked ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nni_manager.config.experiment_file import from_canonical
from nni_manager.config.secrets import mask
from nni_manager.domain.errors import Problem
from nni_manager.domain.experiment import ExperimentSpec

pytestmark = pytest.mark.unit

Load = Callable[..., ExperimentSpec]
Refusals = Callable[..., list[Problem]]


def adl(*, value: dict[str, Any], arguments: list[str]) -> dict[str, Any]:
    container = {"name": "main", "env": [{"name": "WANDB_API_KEY", **value}], "args": arguments}
    return {"platform": "adl", "podTemplate": {"spec": {"containers": [container]}}}


def literals(spec: ExperimentSpec) -> list[str]:
    return [one.field for one in spec.warnings if one.code == "LITERAL_SECRET"]


def test_literal_secrets_are_warned_of_with_their_places(load_with: Load) -> None:
    section = adl(value={"value": "hunter22"}, arguments=["--api-key", "hunter22"])
    spec = load_with(trialCommand="WANDB_API_KEY=hunter22 python3 fit.py", trainingService=section)
    template = "trainingService.podTemplate.spec.containers[0]"
    assert sorted(literals(spec)) == [f"{template}.args[1]", f"{template}.env[0].value", "trialCommand"]
    assert all("hunter22" not in str(one) and "secretKeyRef" in one.message for one in spec.warnings if one.code)
    assert "hunter22" in spec.trial_command, "what runs is whole"
    assert literals(from_canonical(spec.canonical)) == []


def test_command_of_one_service_is_warned_of_by_its_place(load_with: Load) -> None:
    other = {"platform": "local", "name": "local-2", "trialCommand": "python3 fit.py --token hunter22"}
    spec = load_with(trainingService=[{"platform": "local"}, other])
    assert literals(spec) == ["trainingService[1].trialCommand"]


def test_references_are_not_warned_of(load_with: Load) -> None:
    reference = {"valueFrom": {"secretKeyRef": {"name": "wandb", "key": "api"}}}
    section = adl(value=reference, arguments=["--api-key", "$(WANDB_API_KEY)", "--token-file", "/run/token"])
    assert literals(load_with(trialCommand="python3 fit.py --token $TOKEN", trainingService=section)) == []


def test_config_as_it_is_shown_is_refused(load_with: Load, refusals: Refusals) -> None:
    section = adl(value={"value": "hunter22"}, arguments=[])
    given = {"trialCommand": "python3 fit.py --token hunter22", "trainingService": section}
    load_with(**given)
    found = refusals(**mask(given))
    assert {one.field.rpartition(".")[2] for one in found} == {"trialCommand", "value"}
    assert all("was masked" in one.message for one in found)
