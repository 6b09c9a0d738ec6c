"""Helpers that make the dimensions of a search space."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nni_manager import space
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.space import search_space

pytestmark = pytest.mark.unit

MADE: dict[str, Callable[[], dict[str, Any]]] = {
    "uniform": lambda: space.uniform(0, 1),
    "quniform": lambda: space.quniform(0, 1, 0.5),
    "loguniform": lambda: space.loguniform(0.1, 1),
    "qloguniform": lambda: space.qloguniform(1, 9, 2),
    "normal": lambda: space.normal(0, 1),
    "qnormal": lambda: space.qnormal(0, 1, 0.5),
    "lognormal": lambda: space.lognormal(0, 1),
    "qlognormal": lambda: space.qlognormal(0, 1, 0.5),
    "randint": lambda: space.randint(1, 5),
    "choice": lambda: space.choice("a", "b"),
}


def test_every_type_has_a_helper() -> None:
    assert {*MADE} == {*space.__all__} == {"choice", *search_space._NUMBERS}
    for kind, make in MADE.items():
        assert make()["_type"] == kind and search_space.parse({"x": make()}).places


def test_arguments_are_in_the_order_of_nni() -> None:
    assert space.quniform(q=0.5, low=0, high=1) == {"_type": "quniform", "_value": [0, 1, 0.5]}
    assert space.qnormal(q=0.5, sigma=2, mu=1)["_value"] == [1, 2, 0.5]


def test_numbers_of_numpy_become_plain() -> None:
    found = [*space.uniform(np.float32(0.5), np.int64(1))["_value"], *space.randint(np.float64(2), 5)["_value"]]
    assert [(type(value), value) for value in found] == [(float, 0.5), (int, 1), (int, 2), (int, 5)]


@pytest.mark.parametrize("options", [["a", "b"], ("a", "b"), {"b", "a"}, np.array(["a", "b"]), {"a": 0, "b": 0}.keys()])
def test_choice_takes_collections(options: Any) -> None:
    assert space.choice(options) == space.choice("a", "b") == {"_type": "choice", "_value": ["a", "b"]}


def test_choice_of_one_option() -> None:
    assert [space.choice(one)["_value"] for one in ("relu", None, True, [[1, 2]])] == [
        ["relu"],
        [None],
        [True],
        [[1, 2]],
    ]


def test_nested_choice_is_a_dict_of_branches() -> None:
    expected = [{"_name": "sgd", "momentum": space.uniform(0, 1)}, {"_name": "adam"}]
    assert space.choice({"sgd": {"momentum": space.uniform(0, 1)}, "adam": {}})["_value"] == expected
    assert space.choice(expected)["_value"] == space.choice(*expected)["_value"] == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: space.uniform(1, 0), "uniform: low 1 is greater than high 0"),
        (lambda: space.uniform("0", 1), "uniform: low is the text '0', not a number"),  # type: ignore[arg-type]
        (lambda: space.uniform(0, float("nan")), "uniform: high: nan is not a finite number"),
        (lambda: space.loguniform(0, 1), "loguniform: low must be greater than 0"),
        (lambda: space.quniform(0, 1, 0), "quniform: q must be greater than 0"),
        (lambda: space.normal(0, -1), "normal: sigma must be greater than 0"),
        (lambda: space.randint(0.5, 3), "randint: low must be a whole number"),  # type: ignore[arg-type]
        (lambda: space.randint(3, 3), "randint: draws low <= x < high"),
        (lambda: space.choice(), "choice: options: none is given"),
        (lambda: space.choice({1, "a"}), "choice: options: a set whose elements cannot be sorted"),
        (lambda: space.choice({"a": 1}), "choice: options: the branch 'a' must be a dict of dimensions"),
        (lambda: space.choice({"a": {"m": {"_type": "uniform", "_value": [1, 0]}}}), "choice: m: low 1 is greater"),
        (lambda: space.choice(object()), "choice: options: an object cannot be sent"),
    ],
)
def test_wrong_argument_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert str(caught.value).startswith(message)


def test_module_is_an_attribute_of_the_package() -> None:
    program = "import nni_manager, sys; nni_manager.space.uniform(0, 1); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=50).returncode == 0
