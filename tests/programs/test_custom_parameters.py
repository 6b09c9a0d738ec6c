"""Parameters of a user's choice, checked against the search space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest

from nni_manager import space
from nni_manager.domain.errors import InvalidInput
from nni_manager.programs.custom_parameters import checked

pytestmark = pytest.mark.unit

SPACE = {
    "lr": space.uniform(0, 2),
    "n": space.randint(1, 9),
    "opt": space.choice({"sgd": {"m": space.uniform(0, 1)}, "adam": {}}),
}
CONFIG: dict[str, Any] = {"searchSpace": SPACE, "tuner": {"name": "TPE"}}
GOOD = {"lr": 1.5, "n": 4, "opt": {"_name": "adam"}}


def test_numbers_get_the_type_of_their_dimension() -> None:
    given = {"lr": np.int64(1), "n": np.float64(4), "opt": {"_name": "sgd", "m": np.float32(0.5)}}
    found, warnings = checked(given, CONFIG)
    assert repr(found) == repr({"lr": 1.0, "n": 4, "opt": {"_name": "sgd", "m": 0.5}}) and not warnings


def test_row_of_a_table_is_taken() -> None:
    config = {"searchSpace": {"lr": space.uniform(0, 2)}, "tuner": {"name": "Random"}}
    assert checked(pandas.DataFrame({"lr": [0.5]}).iloc[0], config) == ({"lr": 0.5}, [])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1, 2], "parameters: must be a dict of names and values, not list"),
        ({**GOOD, "foo": 1}, "parameters.foo: unknown dimension; the search space has lr, n, opt"),
        ({"lr": 1.5}, "parameters: n, opt are missing; the search space has lr, n, opt"),
        ({**GOOD, "lr": "0.5"}, "parameters.lr: must be a number, not '0.5'"),
        ({**GOOD, "lr": 10**400}, "parameters.lr: must be a number that fits into a float"),
        ({**GOOD, "lr": True}, "parameters.lr: must be a number, not True"),
        ({**GOOD, "lr": float("nan")}, "parameters.lr: nan is not a finite number"),
        ({**GOOD, "lr": object()}, "parameters.lr: an object cannot be sent"),
        ({**GOOD, "n": 4.5}, "parameters.n: must be a whole number, not 4.5"),
        ({**GOOD, "opt": "sgd"}, "parameters.opt: must be a dict whose _name is one of sgd, adam"),
        ({**GOOD, "opt": {"_name": "sgd"}}, "parameters.opt: m is missing; the search space has m"),
        ({**GOOD, "opt": {"_name": "adam", "m": 1}}, "parameters.opt.m: unknown dimension"),
    ],
)
def test_wrong_parameters_are_refused_by_name(given: object, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        checked(given, CONFIG)
    assert str(caught.value).startswith(message)


def test_value_outside_the_space_warns() -> None:
    assert checked({**GOOD, "lr": 5.5}, CONFIG) == (
        {**GOOD, "lr": 5.5},
        ["parameters.lr: 5.5 is outside the search space"],
    )


def test_budget_of_hyperband_is_kept() -> None:
    assert checked({**GOOD, "TRIAL_BUDGET": 3}, CONFIG)[0]["TRIAL_BUDGET"] == 3


@pytest.mark.parametrize("tuner", [{"className": "mine.Tuner"}, {"name": "Batch"}])
def test_search_space_of_another_form_checks_values_alone(tuner: dict[str, str]) -> None:
    config = {"searchSpace": {"sets": space.choice([{"a": 1}, {"a": 2}])}, "tuner": tuner}
    assert checked({"a": np.int64(3)}, config) == ({"a": 3}, [])
