"""Values as programs have them → values of JSON."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from nni_manager.domain.errors import InvalidInput
from nni_manager.programs.plain_values import plain, plain_fields

pytestmark = pytest.mark.unit


class ScalarWithItem:
    """A number of a package that has `item` alone."""

    def item(self) -> float:
        return 0.5


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.arange(3), [0, 1, 2]),
        (np.array(7), 7),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (pandas.Series([1.5, 2.5]), [1.5, 2.5]),
        (pandas.Index(["a", "b"]), ["a", "b"]),
        (ScalarWithItem(), 0.5),
        (Fraction(1, 2), 0.5),
        (range(1, 4), [1, 2, 3]),
        ((1, "a", None), [1, "a", None]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ({"b": 0, "a": 0}.keys(), ["b", "a"]),
        ({"b": 2, "a": 1}.values(), [2, 1]),
        (Path("data") / "a", "data/a"),
        ({"x": {"y": (np.int64(1),)}, 2: True}, {"x": {"y": [1]}, "2": True}),
    ],
    ids=lambda value: type(value).__qualname__,
)
def test_value_becomes_one_of_json(value: object, expected: Any) -> None:
    found = plain(value, "x")
    assert found == expected and type(found) is type(expected)


def endless() -> list[object]:
    inner: list[object] = []
    inner.append(inner)
    return inner


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({1, "a"}, "a set whose elements cannot be sorted has no order; use a list"),
        (iter([1]), "can be read only once"),
        (math.nan, "nan is not a finite number"),
        (np.array([np.inf]), "inf is not a finite number"),
        (np.complex128(1), "a complex cannot be sent"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "a datetime.date cannot be sent"),
        (pandas.NaT, "cannot be sent"),
        (np.float64, "the class float64 cannot be sent"),
        (b"bytes", "a bytes cannot be sent"),
        (object(), "an object cannot be sent"),
        ({None: 1}, "a key of the dict is a NoneType"),
        ({1: "a", "1": "b"}, "two keys of the dict have this name"),
        (endless(), "contains itself"),
    ],
)
def test_other_value_is_refused_with_its_name(value: object, reason: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^search_space\.lr.*: .*{reason}"):
        plain_fields({"search_space": {"lr": {"_type": "choice", "_value": value}}})
