"""Points of a search space by rank."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.domain.space.grid import finite_grid, number_of_points
from nni_manager.domain.space.search_space import parse

pytestmark = pytest.mark.unit


def one(kind: str, *values: object) -> dict[str, Any]:
    return {"_type": kind, "_value": list(values)}


BRANCHES = (
    {"_name": "a", "k": one("randint", 0, 3), "n": one("choice", {"_name": "b"}, {"_name": "c"})},
    {"_name": "d"},
    {"_name": "e", "q": one("quniform", 0, 1, 0.25)},
)
SPACES: list[dict[str, Any]] = [
    {},
    {"x": one("choice", 1, 2, 1.0, True, "1", [1, {"a": 2}])},
    {"x": one("randint", -3, 4), "y": one("quniform", 0.05, 0.96, 0.1), "z": one("uniform", 2, 2)},
    {"x": one("qloguniform", 0.0001, 0.01, 0.0001), "y": one("qnormal", -1, 2, 1)},
    {"x": one("qlognormal", 0, 0.5, 0.5), "c": one("choice", "a", "b")},
    {"m": one("choice", *BRANCHES), "r": one("randint", 0, 2)},
]


@pytest.mark.parametrize("space", SPACES)
def test_rank_and_point_are_inverse(space: dict[str, Any]) -> None:
    grid = finite_grid(parse(space))
    assert grid is not None
    points = [grid.point(rank) for rank in range(grid.count())]
    assert [grid.rank(point) for point in points] == list(range(grid.count()))
    assert all(parse(space).contains(point) for point in points)


def test_equal_options_are_one_point() -> None:
    assert number_of_points(parse({"x": one("choice", 1, 2, 1.0, True)})) == 3


def test_points_are_counted_without_being_made() -> None:
    assert number_of_points(parse({name: one("randint", 0, 10_000) for name in "abcdef"})) == 10**24
    assert number_of_points(parse({"x": one("uniform", 0, 1)})) == float("inf")


def test_rounded_normal_goes_from_the_median_outwards() -> None:
    grid = finite_grid(parse({"x": one("qnormal", 0, 1, 0.1)}))
    assert grid is not None
    assert [grid.point(rank)["x"] for rank in range(7)] == [0.0, 0.1, -0.1, 0.2, -0.2, 0.3, -0.3]
    assert grid.rank({"x": 1000.0}) is None
