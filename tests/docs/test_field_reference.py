"""The reference documentation of every field is what the models say now."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.config.field_reference import TOP_LEVEL, reference
from nni_manager.config.sections.experiment_fields import FIELDS
from nni_manager.config.sections.model_fields import fields_of, models_in
from nni_manager.platform_kit import registry

pytestmark = pytest.mark.unit

FILE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_reference_is_current() -> None:
    assert FILE.read_text() == reference(), "run `make docs`"


def test_every_field_of_the_top_level_is_in_it() -> None:
    assert tuple(TOP_LEVEL) == FIELDS


def test_every_field_of_every_platform_is_described() -> None:
    models = [one.config for one in registry.descriptions()]
    assert len(models) >= 10
    for model in models:  # grows with the mappings within
        fields = fields_of(model)
        assert [name for name, field in fields.items() if not field.description] == []
        models += [inner for field in fields.values() for inner in models_in(field.annotation) if inner not in models]
