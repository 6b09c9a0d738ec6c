"""Formatted values."""

from __future__ import annotations

import pytest

from nni_manager.web import formats

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("json", "text"),
    [
        (None, ""),
        ("0.123456789", "0.123457"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("3", "3"),
        ("1234567", "1234567"),
        ('{"default": Infinity, "loss": 1}', "Infinity"),
        ('{"loss": 1}', '{"loss": 1}'),
        ('"good"', "good"),
        ("true", "true"),
        ("1" + "0" * 400, "1" + "0" * 58 + "…"),
        ('"' + "é" * 100 + '"', "é" * 59 + "…"),
    ],
)
def test_results_are_shown_as_number_or_text(json: str | None, text: str) -> None:
    assert formats.result(json) == text


def test_parameters_without_names_have_an_empty_name() -> None:
    assert formats.parameters({"a": 1, "b": {"c": "ü"}}) == [("a", "1"), ("b.c", "ü")]
    assert formats.parameters([1, 2]) == [("", "[1, 2]")]


def test_moments_and_limits_name_their_unit() -> None:
    assert formats.moment(1_790_000_000_000) == "2026-09-21 14:13:20 UTC"
    assert [formats.limit(value) for value in (None, 60, "2h")] == ["no limit", "60 s", "2h"]
