"""Search spaces: every row of NNI's table, nested choices, and the sentences for bad ones."""

from __future__ import annotations

import json
import math
import random
from decimal import Decimal
from statistics import NormalDist, fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nni_manager.domain.errors import BadDimension, InvalidInput
from nni_manager.domain.space.dimension import Dimension, Real
from nni_manager.domain.space.search_space import PlacedDimension, parse

pytestmark = pytest.mark.unit

UNITS = [0.0, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 1.0]


def one(kind: str, *value: object) -> Dimension:
    (place,) = parse({"x": {"_type": kind, "_value": list(value)}}).places
    return place.dimension


def number(kind: str, *value: object) -> Real:
    dimension = one(kind, *value)
    assert isinstance(dimension, Real)
    return dimension


ALL = {
    "choice": ("a", 1, 2.5, True, None),
    "randint": (-2, 7),
    "uniform": (-1, 3),
    "quniform": (2, 10, 5),
    "loguniform": (1e-4, 10),
    "qloguniform": (0.3, 20, 0.1),
    "normal": (2, 3),
    "qnormal": (2, 3, 0.5),
    "lognormal": (0, 2),
    "qlognormal": (1, 1, 0.25),
}


@pytest.mark.parametrize("kind", ALL)
@given(unit=st.floats(0, 1))
def test_every_quantile_is_contained_and_survives_json(kind: str, unit: float) -> None:
    dimension = one(kind, *ALL[kind])
    value = json.loads(json.dumps(dimension.quantile(unit)))
    assert dimension.contains(value)
    assert value == dimension.quantile(unit)


@pytest.mark.parametrize("kind", ["choice", "randint", "quniform", "qloguniform", "qnormal", "qlognormal"])
@pytest.mark.parametrize("unit", UNITS[1:-1])
def test_the_unit_of_a_discrete_value_leads_back_to_it(kind: str, unit: float) -> None:
    dimension = one(kind, *ALL[kind])
    value = dimension.quantile(unit)
    assert dimension.quantile(dimension.unit(value)) == value


@pytest.mark.parametrize("kind", ["uniform", "loguniform", "normal", "lognormal"])
@pytest.mark.parametrize("unit", UNITS[1:-1])
def test_the_unit_of_a_continuous_value_is_where_it_came_from(kind: str, unit: float) -> None:
    dimension = one(kind, *ALL[kind])
    assert dimension.unit(dimension.quantile(unit)) == pytest.approx(unit)


def test_choice_keeps_types_and_spreads_evenly() -> None:
    dimension = one("choice", 1, True, "1", None)
    assert [dimension.quantile(unit) for unit in (0, 0.3, 0.6, 0.9, 1)] == [1, True, "1", None, None]
    assert [dimension.unit(value) for value in (1, True, "1", None)] == [0.125, 0.375, 0.625, 0.875]
    assert not one("choice", 1, 2).contains(True)


def test_randint_excludes_its_upper_bound_and_rounds_bounds_up() -> None:
    dimension = one("randint", 0.5, 3.2)
    assert {dimension.quantile(unit / 100) for unit in range(101)} == {1, 2, 3}
    assert [dimension.contains(value) for value in (0, 1, 3, 4, 1.5, True)] == [False, True, True, False, False, False]
    assert dimension.size == 3 and [dimension.point(index) for index in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("kind", ["quniform", "qloguniform", "qnormal", "qlognormal"])
@pytest.mark.parametrize("step", [0.1, 0.05, 0.0001, 0.07, 1e-7])
def test_values_are_decimal_multiples_of_the_step(kind: str, step: float) -> None:
    dimension = one(kind, *((0, 1) if kind.endswith("normal") else (step, 1)), step)
    values = [dimension.quantile(unit / 500) for unit in range(1, 500)]
    digits = -Decimal(repr(step)).as_tuple().exponent  # type: ignore[operator]  # a finite number
    assert [value for value in values if value != round(value, digits)] == []
    assert all(dimension.contains(value) and dimension.contains(round(value / step) * step) for value in values)


def test_multiples_of_a_third_reach_the_bound() -> None:
    assert one("quniform", 0, 1, 1 / 3).quantile(1.0) == 1.0


def test_quniform_rounds_half_to_even_and_clips_off_the_grid() -> None:
    dimension = one("quniform", 2, 10, 5)
    values = {dimension.quantile(unit / 1000) for unit in range(1001)}
    assert values == {2.0, 5.0, 10.0} and all(isinstance(value, float) for value in values)
    assert dimension.quantile(0.0625) == 2.0  # 2.5 is between 0 and 5; the even multiple, 0, is clipped
    assert dimension.quantile(0.6875) == 10.0  # 7.5 is between 5 and 10: the even multiple is 10
    assert dimension.size == 3 and [dimension.point(index) for index in range(3)] == [2.0, 5.0, 10.0]


def test_the_grid_of_a_rounded_dimension_is_what_it_can_be() -> None:
    dimension = one("qloguniform", 0.3, 20, 0.1)
    assert dimension.size is not None
    grid = [dimension.point(index) for index in range(dimension.size)]
    assert len(set(grid)) == len(grid) == 198
    assert (grid[0], grid[-1]) == (pytest.approx(0.3), 20)
    assert {dimension.quantile(unit / 5000) for unit in range(5001)} <= set(grid)


@pytest.mark.parametrize("kind", ["uniform", "loguniform", "normal", "qnormal", "lognormal", "qlognormal"])
def test_dimension_without_finite_grid_has_none(kind: str) -> None:
    assert one(kind, *ALL[kind]).size is None


def test_a_range_of_one_value_has_one_grid_point() -> None:
    dimension = one("uniform", 4, 4)
    assert (dimension.size, dimension.point(0), dimension.quantile(0.3), dimension.unit(4)) == (1, 4.0, 4.0, 0.5)


def test_loguniform_takes_values_not_exponents() -> None:
    dimension = one("loguniform", 0.001, 0.1)
    assert dimension.quantile(0.5) == pytest.approx(0.01)
    assert (dimension.quantile(0.0), dimension.quantile(1.0)) == pytest.approx((0.001, 0.1))


def test_normal_and_lognormal_follow_their_distribution() -> None:
    source = random.Random(1)
    normal = [number("normal", 5, 2).quantile(source.random()) for _ in range(2000)]
    assert NormalDist.from_samples(normal).mean == pytest.approx(5, abs=0.2)
    assert NormalDist.from_samples(normal).stdev == pytest.approx(2, abs=0.2)
    logs = [math.log(number("lognormal", -1, 0.5).quantile(source.random())) for _ in range(2000)]
    assert fmean(logs) == pytest.approx(-1, abs=0.05)


def test_rounded_normals_are_not_clipped() -> None:
    dimension = one("qnormal", 0, 10, 5)
    assert dimension.quantile(0.999) == 30.0 and dimension.quantile(0.001) == -30.0
    assert dimension.contains(-1000.0) and not dimension.contains(2.0)
    assert one("qlognormal", -5, 1, 1).quantile(0.1) == 0.0 and one("qlognormal", -5, 1, 1).contains(0.0)


def test_the_ends_of_the_unit_interval_are_finite() -> None:
    for unit in (0.0, 1.0):
        assert math.isfinite(number("normal", 0, 1).quantile(unit))
        assert math.isfinite(number("lognormal", 500, 500).quantile(unit))
        assert math.isfinite(number("qlognormal", 500, 500, 1e-9).quantile(unit))


@pytest.mark.parametrize("value", ["1", None, True, math.nan, math.inf, [1], 11, 1.9])
def test_numbers_out_of_range_or_no_numbers_are_not_contained(value: object) -> None:
    assert not one("uniform", 2, 10).contains(value)


WIDEST: list[tuple[str, tuple[float, ...]]] = [
    ("uniform", (-8e307, 8e307)),
    ("quniform", (-8e307, 8e307, 1e-300)),
    ("randint", (-8e307, 8e307)),
    ("loguniform", (5e-324, 1.7e308)),
    ("qloguniform", (5e-324, 1.7e308, 5e-324)),
    ("normal", (0, 1.9e307)),
    ("qnormal", (0, 1.9e307, 5e-324)),
]


@pytest.mark.parametrize(("kind", "value"), WIDEST)
@given(unit=st.floats(0, 1))
def test_the_widest_dimensions_have_quantiles(kind: str, value: tuple[float, ...], unit: float) -> None:
    dimension = one(kind, *value)
    quantile = dimension.quantile(unit)
    assert dimension.contains(quantile) and 0 <= dimension.unit(quantile) <= 1
    assert dimension.size is None or dimension.size > 1


NESTED = {
    "model": {
        "_type": "choice",
        "_value": [
            {"_name": "a", "lr": {"_type": "loguniform", "_value": [0.001, 0.1]}},
            {
                "_name": "b",
                "lr": {"_type": "choice", "_value": [7]},
                "deep": {"_type": "choice", "_value": [{"_name": "c", "n": {"_type": "randint", "_value": [0, 3]}}]},
            },
            {"_name": "empty"},
        ],
    },
    "q": {"_type": "quniform", "_value": [2, 10, 5]},
}


def test_nested_choices_are_flattened_with_their_condition() -> None:
    places = parse(NESTED).places
    assert [place.key for place in places] == [
        ("model",),
        ("model", 0, "lr"),
        ("model", 1, "lr"),
        ("model", 1, "deep"),
        ("model", 1, "deep", 0, "n"),
        ("q",),
    ]
    assert [place.parent for place in places[:3]] == [(), ("model", 0), ("model", 1)]
    assert places[0].branches == ("a", "b", "empty") and places[1].branches == ()


def test_only_the_chosen_branch_is_asked_for_and_present() -> None:
    asked: list[PlacedDimension] = []

    def choose(place: PlacedDimension) -> object:
        asked.append(place)
        return {"model": 1, "lr": 7, "deep": 0, "n": 2, "q": 5.0}[place.name]

    parameters = parse(NESTED).assemble(choose)
    assert parameters == {"model": {"_name": "b", "lr": 7, "deep": {"_name": "c", "n": 2}}, "q": 5.0}
    assert [place.name for place in asked] == ["model", "lr", "deep", "n", "q"]


@given(units=st.lists(st.floats(0, 1), min_size=6, max_size=6))
def test_picks_match_choices(units: list[float]) -> None:
    space = parse(NESTED)
    chosen: dict[object, object] = {}

    def choose(place: PlacedDimension) -> object:
        chosen[place.key] = place.dimension.quantile(units[len(chosen)])
        return chosen[place.key]

    parameters = json.loads(json.dumps(space.assemble(choose)))
    assert space.picks(parameters) == chosen
    assert space.contains(parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        [],
        {},
        {"q": 5.0},
        {"model": {"_name": "a", "lr": 0.01}},
        {"model": {"_name": "a", "lr": 7}, "q": 5.0},
        {"model": {"_name": "b", "lr": 7}, "q": 5.0},
        {"model": {"_name": "nobody"}, "q": 5.0},
        {"model": "a", "q": 5.0},
        {"model": {"_name": "empty"}, "q": 3.0},
        {"model": {"_name": "empty", "lr": 0.01}, "q": 5.0},
        {"model": {"_name": "empty"}, "q": 5.0, "more": 1},
    ],
)
def test_parameters_of_another_space_are_not_contained(parameters: object) -> None:
    assert not parse(NESTED).contains(parameters)


def test_a_choice_is_nested_only_if_all_its_elements_have_a_name() -> None:
    element = {"_name": "a", "x": {"_type": "randint", "_value": [0, 2]}}
    (place,) = parse({"c": {"_type": "choice", "_value": [element, "plain"]}}).places
    assert place.branches == () and place.dimension.quantile(0.0) == element


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ([1, 2], ("searchSpace.x", "_type")),
        ({"_type": "choice"}, ("searchSpace.x", "_value")),
        ({"_type": "choice", "_value": []}, ("searchSpace.x", "at least one")),
        ({"_type": "unifrom", "_value": [0, 1]}, ("searchSpace.x", "unifrom", "quniform")),
        ({"_type": ["choice"], "_value": [0, 1]}, ("searchSpace.x", "unknown")),
        ({"_type": "layer_choice", "_value": ["a"]}, ("searchSpace.x", "architecture search")),
        ({"_type": "input_choice", "_value": {}}, ("searchSpace.x", "architecture search")),
        ({"_type": "uniform", "_value": [1]}, ("searchSpace.x", "[low, high]")),
        ({"_type": "uniform", "_value": {"low": 1}}, ("searchSpace.x", "[low, high]")),
        ({"_type": "uniform", "_value": [2, 1]}, ("searchSpace.x", "greater than high")),
        ({"_type": "uniform", "_value": [0, math.inf]}, ("searchSpace.x", "finite")),
        ({"_type": "uniform", "_value": [-1e308, 1e308]}, ("searchSpace.x: high - low of uniform exceeds 1.8e308",)),
        ({"_type": "quniform", "_value": [-1e308, 1e308, 1]}, ("high - low of quniform",)),
        ({"_type": "randint", "_value": [-1e308, 1e308]}, ("high - low of randint",)),
        ({"_type": "normal", "_value": [0, 1e308]}, ("mu + 9 sigma of normal exceeds",)),
        ({"_type": "qnormal", "_value": [-1.7e308, 1e307, 1]}, ("mu + 9 sigma of qnormal exceeds",)),
        ({"_type": "lognormal", "_value": [1, 1.7e308]}, ("mu + 9 sigma of lognormal exceeds",)),
        ({"_type": "uniform", "_value": [0, True]}, ("searchSpace.x", "high", "True")),
        ({"_type": "loguniform", "_value": ["1e-4", 1]}, ("searchSpace.x", "'1e-4'", "without quotes")),
        ({"_type": "loguniform", "_value": [-4, 1]}, ("searchSpace.x", "not an exponent")),
        ({"_type": "quniform", "_value": [0, 1, 0]}, ("searchSpace.x", "q must be")),
        ({"_type": "normal", "_value": [0, 0]}, ("searchSpace.x", "sigma")),
        ({"_type": "randint", "_value": [3, 3]}, ("searchSpace.x", "randint")),
        ({"_type": "choice", "_value": [{"_name": "a"}, {"_name": "a"}]}, ("searchSpace.x", "_name")),
        ({"_type": "choice", "_value": [{"_name": "a", "y": 3}]}, ("searchSpace.x.a.y", "_type")),
    ],
)
def test_bad_dimension_is_named_in_one_sentence(spec: object, words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse({"x": spec})
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)


def test_bad_nested_dimension_names_its_place() -> None:
    branches = [{"_name": "a"}, {"_name": "b", "y": {"_type": "normal", "_value": [0, -1]}}]
    with pytest.raises(BadDimension) as caught:
        parse({"x": {"_type": "choice", "_value": branches}})
    assert caught.value.key == ("x", 1, "y")
    assert str(caught.value) == f"searchSpace.x.b.y: {caught.value.reason}"


@pytest.mark.parametrize("space", [[], "x", None, 3])
def test_space_that_is_not_an_object_is_refused(space: object) -> None:
    with pytest.raises(InvalidInput, match="searchSpace"):
        parse(space)
