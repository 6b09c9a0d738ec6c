"""The reference documentation of every field is what the models say now."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.config.field_reference import reference
from nni_manager.config.sections.experiment_model import Experiment
from nni_manager.config.sections.model_fields import fields_of, models_in
from nni_manager.platform_kit import registry

pytestmark = pytest.mark.unit

FILE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_it_is_current() -> None:
    assert FILE.read_text() == reference(), "run `make docs`"


def test_every_field_of_every_platform_is_described() -> None:
    models = [Experiment, *(one.config for one in registry.descriptions())]
    assert len(models) >= 10
    for model in models:  # grows with the mappings within
        fields = fields_of(model)
        assert [name for name, field in fields.items() if not field.description] == []
        models += [inner for field in fields.values() for inner in models_in(field.annotation) if inner not in models]
