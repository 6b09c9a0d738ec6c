"""GridSearch: everything finite exactly once, everything else on ever finer grids."""

from __future__ import annotations

import json
import math
from itertools import islice, product
from statistics import NormalDist

import pytest

from nni_manager.domain.space.search_space import parse
from nni_manager.tuners.contract import NoMoreProposals, Pending, Tuner
from nni_manager.tuners.grid import GridSearch, combinations
from nni_manager.tuners.testing import NESTED, Space, TunerContract, dimension, result

pytestmark = pytest.mark.unit


class TestGridSearch(TunerContract):
    proposals = 20

    def make(self) -> Tuner:
        return GridSearch()

    def spaces(self) -> dict[str, Space]:
        small = {"x": dimension("choice", "a", 1, 2.5, True, None)}
        spaces = {name: space for name, space in super().spaces().items() if name != "choice"}
        return {**spaces, "choice": {**small, "y": dimension("randint", 0, 20)}}


def new(space: Space) -> GridSearch:
    tuner = GridSearch()
    tuner.update_search_space(space)
    return tuner


def test_whole_numbers_match_in_any_notation() -> None:
    """JSON of JavaScript, and imports as they are stored, have 1 for 1.0."""
    tuner = new({"x": dimension("quniform", 0, 3, 1), "y": dimension("choice", True, 1)})
    tuner.import_data([{"parameter": {"x": 0, "y": True}, "value": 1}, {"parameter": {"x": 1, "y": 1.0}, "value": 1}])
    found = everything(tuner)
    assert len(found) == 6 and {"x": 0.0, "y": True} not in [one for one in found if one["y"] is True]


def test_known_values_that_differ_in_rounding_are_left_out() -> None:
    tuner = new({"x": dimension("quniform", 0, 1, 0.1)})
    tuner.import_data([{"parameter": {"x": value}, "value": 1} for value in (3 * 0.1, 0.5, 7 * 0.1, 1)])
    assert [one["x"] for one in everything(tuner)] == [0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9]
    tuner = new({"x": dimension("uniform", 0.1, 0.5)})
    tuner.import_data([{"parameter": {"x": 0.3}, "value": 1}])
    assert [tuner.propose(number)["x"] for number in range(2)] == [0.2, 0.4]


def test_withdrawn_proposals_come_again() -> None:
    tuner = new({"x": dimension("randint", 0, 5)})
    tuner.propose_many(range(4))
    tuner.withdraw([1, 3])
    tuner.import_data([{"parameter": {"x": 3}, "value": 1}])
    assert everything(tuner, 4) == [{"x": 1}, {"x": 4}]
    tuner = new({"x": dimension("uniform", 0, 8)})
    tuner.propose_many(range(3))
    tuner.withdraw([1, 2])
    assert [tuner.propose(number)["x"] for number in range(3, 6)] == [2, 6, 1]


def everything(tuner: GridSearch, first: int = 0) -> list[dict[str, object]]:
    batch = tuner.propose_many(range(first, 10_000))
    assert batch.exhausted
    return [parameters for _, parameters in batch.proposals]  # type: ignore[misc]


def test_finite_dimensions_are_combined_exactly_once() -> None:
    space = {"a": dimension("choice", "x", "y"), "b": dimension("randint", 0, 3), "c": dimension("quniform", 2, 10, 5)}
    proposed = everything(new(space))
    expected = list(product("xy", range(3), (2.0, 5.0, 10.0)))
    assert [tuple(parameters.values()) for parameters in proposed] == expected


def test_equal_options_are_proposed_once() -> None:
    assert everything(new({"x": dimension("choice", 1, 2, 1)})) == [{"x": 1}, {"x": 2}]


def test_branches_of_a_nested_choice_are_added_not_multiplied() -> None:
    branches = [
        {"_name": "a", "n": dimension("randint", 0, 3)},
        {"_name": "b", "m": dimension("choice", {"_name": "c", "k": dimension("randint", 0, 2)}, {"_name": "d"})},
        {"_name": "e"},
    ]
    proposed = everything(new({"x": dimension("choice", *branches), "y": dimension("choice", 1, 2)}))
    assert len(proposed) == (3 + (2 + 1) + 1) * 2
    assert len({json.dumps(parameters) for parameters in proposed}) == len(proposed)
    assert {"x": {"_name": "b", "m": {"_name": "c", "k": 1}}, "y": 2} in proposed


def test_continuous_dimensions_are_halved_again_and_again() -> None:
    tuner = new({"x": dimension("uniform", 0, 8)})
    assert [tuner.propose(number)["x"] for number in range(7)] == [4, 2, 6, 1, 3, 5, 7]


def test_normals_are_halved_by_probability() -> None:
    tuner = new({"x": dimension("normal", 0, 1)})
    quantiles = [NormalDist().inv_cdf(unit) for unit in (0.5, 0.25, 0.75, 0.125)]
    assert [tuner.propose(number)["x"] for number in range(4)] == pytest.approx(quantiles)


def test_a_finer_grid_starts_when_the_coarser_one_is_exhausted() -> None:
    tuner = new({"x": dimension("uniform", 0, 1), "c": dimension("choice", "a", "b")})
    proposed = [tuple(tuner.propose(number).values()) for number in range(6)]
    assert proposed == list(product([0.5, 0.25, 0.75], "ab"))


def test_rounded_normal_widens_until_exhausted() -> None:
    values = [parameters["x"] for parameters in everything(new({"x": dimension("qnormal", 1, 2, 4)}))]
    assert values[0] == 0.0 and len(set(values)) == len(values)
    # 50 halvings reach about eight standard deviations
    assert set(range(-12, 13, 4)) <= set(values) and all(value % 4 == 0 for value in values)  # type: ignore[operator]


def test_a_rounded_normal_with_fine_steps_is_halved() -> None:
    tuner = new({"x": dimension("qnormal", 0, 1e6, 1)})
    assert [tuner.propose(number)["x"] for number in range(3)] == [0.0, -674490.0, 674490.0]


def test_huge_range_is_enumerated_lazily() -> None:
    tuner = new({"x": dimension("randint", 0, 10**15), "y": dimension("quniform", 0, 1e9, 0.5)})
    assert [tuner.propose(number) for number in range(2)] == [{"x": 0, "y": 0.0}, {"x": 0, "y": 0.5}]


@pytest.mark.parametrize(
    ("kind", "value", "points"),
    [
        ("lognormal", (0, 1e-300), [1]),
        ("normal", (1e300, 1e-5), [1e300]),
        ("uniform", (1, 1 + 3 * 2**-52), [1 + number * 2**-52 for number in range(4)]),
        ("qlognormal", (0, 1e6, 1), [0, 1, math.exp(709)]),
        ("quniform", (1e300, math.nextafter(1e300, math.inf), 1), [1e300, math.nextafter(1e300, math.inf)]),
    ],
)
def test_a_range_of_few_numbers_ends(kind: str, value: tuple[float, ...], points: list[float]) -> None:
    proposed = everything(new({"c": dimension("choice", "a", "b"), "x": dimension(kind, *value)}))
    assert sorted(tuple(parameters.values()) for parameters in proposed) == list(product("ab", points))


def test_mixed_space_repeats_no_proposal() -> None:
    tuner = new({"m": NESTED, "q": dimension("qlognormal", 0, 1, 1)})
    texts = [json.dumps(tuner.propose(number)) for number in range(1500)]
    assert len(set(texts)) == 1500


def test_known_trials_are_left_out() -> None:
    space = {"x": dimension("randint", 0, 6)}
    tuner = new(space)
    tuner.import_data([{"parameter": {"x": 0}, "value": 1}])
    tuner.adopt(Pending(parameter_id=None, parameters={"x": 2}, trial_id="t"))
    tuner.learn(result(None, {"x": 4}, None))
    assert everything(tuner) == [{"x": 1}, {"x": 3}, {"x": 5}]
    assert tuner.state() == {"seen": 6}


def test_exhaustion_is_for_ever_until_the_space_changes() -> None:
    tuner = new({"x": dimension("choice", 1)})
    assert tuner.propose(0) == {"x": 1}
    for number in (1, 2):
        with pytest.raises(NoMoreProposals) as caught:
            tuner.propose(number)
        assert caught.value.permanently
    tuner.update_search_space({"x": dimension("choice", 1, 2)})
    assert everything(tuner, 3) == [{"x": 2}]


def test_an_empty_space_has_one_combination() -> None:
    assert everything(new({})) == [{}]


def test_coarse_combinations_come_again_on_the_finer_grid() -> None:
    """The memory of what was seen relies on it after a restart."""
    first = list(islice(combinations(parse({"x": dimension("uniform", 0, 1)})), 4))
    assert [parameters["x"] for parameters in first] == [0.5, 0.5, 0.25, 0.75]
