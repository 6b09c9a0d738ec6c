"""Comparing results."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nni_manager.domain.metrics import OptimizeMode, default_number, is_better

pytestmark = pytest.mark.unit

MAX, MIN = OptimizeMode.MAXIMIZE, OptimizeMode.MINIMIZE
NAN = math.nan


@pytest.mark.parametrize(("candidate", "best", "mode", "better"), [
    (2, 1, MAX, True), (1, 2, MAX, False), (1, 1, MAX, False),
    (2, 1, MIN, False), (1, 2, MIN, True), (1, 1, MIN, False),
    (None, 1, MAX, False), (None, None, MAX, False), (NAN, None, MAX, False), (NAN, NAN, MIN, False),
    (None, NAN, MIN, False), (NAN, 1, MIN, False),
    (1, None, MAX, True), (1, NAN, MAX, True), (1, None, MIN, True), (1, NAN, MIN, True),
    (math.inf, 1, MAX, True), (-math.inf, 1, MAX, False), (-math.inf, 1, MIN, True), (-math.inf, NAN, MAX, True),
])  # fmt: skip
def test_is_better(candidate: float | None, best: float | None, mode: OptimizeMode, better: bool) -> None:
    assert is_better(candidate, best, mode) is better


@given(st.none() | st.floats(), st.none() | st.floats(), st.sampled_from(OptimizeMode))
def test_two_results_are_never_better_than_each_other(a: float | None, b: float | None, mode: OptimizeMode) -> None:
    assert not (is_better(a, b, mode) and is_better(b, a, mode))


@pytest.mark.parametrize(("value", "number"), [
    (1, 1.0), (0.5, 0.5), (True, None), ("1", None), (None, None), ([1], None), ({}, None), ({"default": 2}, 2.0),
    ({"default": "2"}, None), ({"default": False}, None), ({"default": None}, None),
    pytest.param(10**400, math.inf, id="huge"), pytest.param(-(10**400), -math.inf, id="-huge"),
    pytest.param({"default": 10**400}, math.inf, id="huge default"),
])  # fmt: skip
def test_default_number(value: object, number: float | None) -> None:
    assert default_number(value) == number
