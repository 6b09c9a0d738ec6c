"""The number of a result that is compared."""

from __future__ import annotations

import math

import pytest

from nni_manager.domain.metrics import default_number

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        (0.5, 0.5),
        (True, None),
        ("1", None),
        (None, None),
        ([1], None),
        ({}, None),
        ({"default": 2}, 2.0),
        ({"default": "2"}, None),
        ({"default": False}, None),
        ({"default": None}, None),
        pytest.param(10**400, math.inf, id="huge"),
        pytest.param(-(10**400), -math.inf, id="-huge"),
        pytest.param({"default": 10**400}, math.inf, id="huge default"),
    ],
)
def test_default_number(value: object, number: float | None) -> None:
    assert default_number(value) == number
