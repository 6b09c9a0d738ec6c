"""Numbers of charts: seven digits, whole ones as they are, NaN as null."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nni_manager.analysis.json_text import numbers, short

pytestmark = pytest.mark.unit


def test_numbers_are_rounded_together_as_one_by_one() -> None:
    draw = np.random.default_rng(0)
    values = draw.choice([-1.0, 1.0], 5000) * 10 ** draw.uniform(-15, 15, 5000)
    assert numbers(values) == [short(value) for value in values.tolist()]


def test_what_has_no_digits_to_lose_stays() -> None:
    values = [0.0, 1.0, 1790000000123.0, -(2.0**60), math.inf, -math.inf, 0.5, 1e-300]
    assert numbers(np.array(values)) == values
    assert all(type(value) is int for value in numbers(np.array(values[:3])))
    assert numbers(np.array([math.nan, 9.99999996])) == [None, 10]
    assert numbers(np.arange(2)) == [0, 1] and numbers(np.empty(0)) == []
