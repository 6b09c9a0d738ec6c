"""Assessors by name."""

from __future__ import annotations

import pytest

from nni_manager.assessors import registry
from nni_manager.assessors.medianstop import Medianstop
from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.domain.errors import InvalidInput

pytestmark = pytest.mark.unit


def test_medianstop_is_found_in_any_case() -> None:
    assert isinstance(registry.create(AlgorithmSpec(name="medianstop", class_args={"start_step": 3})), Medianstop)
    assert registry.CATALOGUE.find("MEDIANSTOP").name == "Medianstop"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (AlgorithmSpec(name="Medianstopp"), "did you mean Medianstop"),
        (AlgorithmSpec(name="Curvefit"), "did you mean Curvefitting"),
        (AlgorithmSpec(name="Nothing"), "cannot find assessor 'Nothing'"),
        (
            AlgorithmSpec(name="Medianstop", class_args={"step": 1}),
            "classArgs.step: Medianstop does not have this argument",
        ),
    ],
)
def test_unusable_assessor_is_explained(spec: AlgorithmSpec, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        registry.create(spec)
