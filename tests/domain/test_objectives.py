"""What results are worth, and Pareto sets of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nni_manager.domain.objectives import Goals, Worth, extended_set, parse_constraint

pytestmark = pytest.mark.unit

GOALS = Goals.of({"accuracy": "maximize", "latency": "minimize"}, {"memory": "<= 8", "power": "> 1"})


@pytest.mark.parametrize(
    ("text", "number", "violation"),
    [
        ("<= 8", 8, 0.0),
        ("<=8", 8.5, 0.5),
        (">= 8", 8, 0.0),
        (">= 8", 6, 2.0),
        (" < -1e3", -1001, 0.0),
        ("> 1", 1.5, 0.0),
        ("<= 8", None, math.inf),
        ("<= 8", math.nan, math.inf),
        ("<= 8", -math.inf, 0.0),
    ],
)
def test_a_constraint_is_violated_by_the_distance_to_its_bound(
    text: str, number: float | None, violation: float
) -> None:
    assert parse_constraint(text).violation(number) == violation


@pytest.mark.parametrize("text", ["< 1", "> 1"])
def test_the_bound_itself_violates_a_strict_constraint(text: str) -> None:
    assert 0 < parse_constraint(text).violation(1) < 1e-300


@pytest.mark.parametrize("text", ["8", "= 8", "<= eight", "<= nan", "<= inf", "=> 8", "", 8, None, "<= 8 GB"])
def test_what_is_no_constraint_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match='such as "<= 8"'):
        parse_constraint(text)


@pytest.mark.parametrize("text", ["<= 8", "> 0.1", ">= -12.000000000000002", "< 1e+30"])
def test_a_constraint_keeps_its_digits_as_text(text: str) -> None:
    assert str(parse_constraint(text)) == text


def test_the_worth_of_a_result() -> None:
    worth = GOALS.judge({"accuracy": 0.9, "latency": 3, "memory": 10, "power": 2, "other": "x"})
    assert worth == Worth(losses=(-0.9, 3.0), violations=(2.0, 0.0))
    assert (
        worth is not None
        and not worth.is_feasible
        and GOALS.values(worth.losses)
        == {
            "accuracy": 0.9,
            "latency": 3.0,
        }
    )
    without = GOALS.judge({"accuracy": 0.9, "latency": 3})
    assert without is not None and without.violation == math.inf


@pytest.mark.parametrize(
    "result",
    [
        None,
        0.5,
        "text",
        [],
        {"accuracy": 1},
        {"accuracy": 1, "latency": math.nan},
        {"accuracy": 1, "latency": math.inf},
        {"accuracy": True, "latency": 1},
    ],
)
def test_result_without_all_finite_objectives_has_no_worth(result: object) -> None:
    assert GOALS.judge(result) is None


def test_a_number_is_the_objective_default() -> None:
    assert Goals.of({"default": "minimize"}, {}).judge(2) == Worth(losses=(2.0,))


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)


@given(st.data(), st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_set_equals_pairwise_comparison(data: st.DataObject, objectives: int) -> None:
    """However the results are cut into the set so far and new ones."""
    loss = st.integers(0, 6).map(float)
    worth = st.tuples(st.tuples(*[loss] * objectives), st.sampled_from([0.0, 0.0, 1.0, 2.0, math.inf]))
    results = [
        (number, Worth(losses=losses, violations=(violation,)))
        for number, (losses, violation) in enumerate(data.draw(st.lists(worth, max_size=25)))
    ]
    least = min((one.violation for _, one in results), default=0.0)
    rivals = [(number, one) for number, one in results if one.violation == least]
    expected = {n for n, one in rivals if not any(dominates(other.losses, one.losses) for _, other in rivals)}
    cut = data.draw(st.integers(0, len(results)))
    found = extended_set(extended_set([], results[:cut]), results[cut:])
    assert {number for number, _ in found} == expected and len(found) == len(expected)
    assert [one.losses for _, one in found] == sorted(one.losses for _, one in found)
