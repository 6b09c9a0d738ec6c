"""The reference documentation of every field is what the models say now."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from nni_manager.config.field_reference import reference
from nni_manager.config.reading.scalars import memory_mb, seconds
from nni_manager.config.sections.experiment_model import Experiment, marked
from nni_manager.config.sections.model_fields import fields_of, models_in
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.platform_kit import registry

pytestmark = pytest.mark.unit

FILE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_reference_is_current() -> None:
    assert FILE.read_text() == reference(), "run `make docs`"


def test_every_field_of_every_platform_is_described() -> None:
    models = [Experiment, *(one.config for one in registry.descriptions())]
    assert len(models) >= 10
    for model in models:  # grows with the mappings within
        found = fields_of(model)
        assert [name for name, field in found.items() if not field.description] == []
        models += [inner for field in found.values() for inner in models_in(field.annotation) if inner not in models]


def test_documented_default_is_that_of_the_spec() -> None:
    defaults = {field.name: field.default for field in fields(ExperimentSpec)}
    shown = {name: value.strip("`") for name, value in marked("shown").items()}
    assert int(shown["maxTrialRetries"]) == defaults["max_trial_retries"]
    assert int(shown["maxSameFailures"]) == defaults["max_same_failures"]
    assert int(shown["maxUnusableResults"]) == defaults["max_unusable_results"]
    assert seconds(shown["gracePeriod"]) == defaults["grace_period_s"]
    assert seconds(shown["metricGrace"]) == defaults["metric_grace_s"]
    assert memory_mb(shown["maxLogSize"]) * 2**20 == defaults["max_log_bytes"]
    assert memory_mb(shown["maxResultSize"]) * 2**20 == defaults["max_result_bytes"]
    assert shown["logCollection"] == defaults["log_collection"]
