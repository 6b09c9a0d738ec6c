"""Parameters with more choices than are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nni_manager.analysis.answers.columns import MOST_CHOICES
from tests.analysis.filled import Filled, filled

pytestmark = pytest.mark.unit

_MANY = [f"value-{at}" for at in range(200)]
_SPACE = {"word": {"_type": "choice", "_value": _MANY}, "rate": {"_type": "uniform", "_value": [0, 1]}}


@pytest.fixture
def with_many(tmp_path: Path) -> Iterator[Filled]:
    with filled(tmp_path, space=_SPACE) as experiment:
        yield experiment


def test_occurring_choices_are_distinguished(with_many: Filled) -> None:
    for at in (117, 3, 117, 199):
        with_many.add({"word": f"value-{at}", "rate": 0.5}, final=at)
    (word, _) = with_many.asked("columns", "")["parameters"]
    assert {"value-3", "value-117", "value-199"} <= set(word["choices"])
    assert word["choices"] == [choice for choice in _MANY if choice in word["choices"]], "in the order of the space"
    assert (len(word["choices"]), word["others"]) == (MOST_CHOICES, 150)
    (effect,) = with_many.asked("effect", "parameter=word")["parameters"]
    assert [(bin["choice"], bin["count"]) for bin in effect["bins"]] == [
        ("value-3", 1),
        ("value-117", 2),
        ("value-199", 1),
    ]
    assert [effect["choices"][bin["place"]] for bin in effect["bins"]] == ["value-3", "value-117", "value-199"]
    assert effect["others"] == 0, "no trial has one"


def test_all_other_choices_are_one_and_nothing_is_absent(with_many: Filled) -> None:
    for at in range(60):
        for _ in range(2 if at >= 10 else 1):
            with_many.add({"word": f"value-{at}", "rate": at / 60}, final=at)
    answer = with_many.asked("parallel", "axes=word")
    (axis, _) = answer["axes"]
    assert axis["choices"] == _MANY[10:60] and axis["others"] == 150
    assert None not in answer["lines"]["values"][0] and answer["lines"]["values"][0].count(50) == 10
    assert answer["histograms"][0]["counts"] == [2] * 50 + [10]
    (effect,) = with_many.asked("effect", "parameter=word")["parameters"]
    assert effect["bins"][-1]["place"] == 50 and effect["bins"][-1]["count"] == 10
    pair = with_many.asked("pair", "a=word&b=rate")
    assert pair["shown"] == 110 and pair["a"]["others"] == 150
    assert {cell["i"] for cell in pair["cells"]} == set(range(51))


def test_numbers_and_truth_values_are_different_choices(tmp_path: Path) -> None:
    space = {"kind": {"_type": "choice", "_value": [1, True, 2.0, None, [8, 4]]}}
    with filled(tmp_path, space=space) as experiment:
        for at, value in enumerate((True, 1, 1.0, 2, None, [8, 4])):
            experiment.add({"kind": value}, final=at)
        (effect,) = experiment.asked("effect", "parameter=kind")["parameters"]
        assert [(bin["choice"], bin["count"]) for bin in effect["bins"]] == [
            (1, 2),
            (True, 1),
            (2.0, 1),
            (None, 1),
            ([8, 4], 1),
        ]
