"""BOHB: Hyperband's brackets, and configurations near good ones."""

from __future__ import annotations

import math
import random
from statistics import mean

import numpy
import pytest

from nni_manager.domain.errors import InvalidInput
from nni_manager.tuners.bohb import BOHB
from nni_manager.tuners.contract import Tuner
from nni_manager.tuners.hyperband import BUDGET
from nni_manager.tuners.kernel_density import Density, filled
from nni_manager.tuners.testing import NESTED, Space, TunerContract, dimension, result
from tests.tuners.test_hyperband_tuner import in_space_with_budget, spaces_of_many

pytestmark = pytest.mark.unit

LINE = {"x": dimension("uniform", 0, 1)}


class TestBOHB(TunerContract):
    def make(self) -> Tuner:
        return BOHB(max_budget=9, seed=3)

    def spaces(self) -> dict[str, Space]:
        return spaces_of_many()

    def contains(self, space: Space, parameters: object) -> bool:
        return in_space_with_budget(space, parameters)


def new(space: Space, **arguments: object) -> BOHB:
    tuner = BOHB(**{"seed": 1, "optimize_mode": "minimize", **arguments})  # type: ignore[arg-type]
    tuner.update_search_space(space)
    return tuner


def test_budgets_and_brackets_are_as_published() -> None:
    """Falkner et al. 2018, Algorithm 1, with budgets from 1 to 9; whole numbers as in NNI."""
    tuner = new(LINE, min_budget=1, max_budget=9)
    budgets = [parameters[BUDGET] for _, parameters in tuner.propose_many(range(17)).proposals]  # type: ignore[index]
    assert budgets == [1] * 9 + [3] * 5 + [9] * 3


def test_budgets_below_1_stay_fractions() -> None:
    tuner = new(LINE, min_budget=0.25, max_budget=1, eta=2)
    assert tuner.propose(0)[BUDGET] == 0.25


def test_it_goes_by_results_once_there_are_enough_of_them() -> None:
    tuner = new(LINE, max_budget=1, random_fraction=0)
    source = random.Random(4)
    drawn = []
    for number in range(60):
        parameters = tuner.propose(number)
        drawn.append(parameters["x"])
        tuner.learn(result(number, parameters, abs(float(str(parameters["x"])) - 0.3) + source.random() * 0.01))
    far = [abs(float(str(x)) - 0.3) for x in drawn]
    assert mean(far[40:]) < mean(far[:4]) / 3


def test_model_uses_largest_budget_with_enough_results() -> None:
    tuner = new(LINE, max_budget=9, random_fraction=0, min_points_in_model=4)
    for number in range(30):  # with little budget the optimum seems to be elsewhere
        low, high = {"x": number / 30, BUDGET: 1}, {"x": number / 30, BUDGET: 9}
        tuner.learn(result(None, low, abs(number / 30 - 0.9)))
        if number % 5 == 0:
            tuner.learn(result(None, high, abs(number / 30 - 0.1)))
    assert mean(float(str(tuner.propose(number)["x"])) for number in range(30)) < 0.5


def test_failed_trials_count_as_bad_and_cancelled_are_ignored() -> None:
    tuner = new(LINE)
    for number in range(4):
        tuner.learn(result(number, {"x": 0.9, BUDGET: 3}, None))
    assert tuner.state()["learned"] == 4
    cancelled = result(9, {"x": 0.9, BUDGET: 3}, None)
    tuner.learn(type(cancelled)(**{**_fields(cancelled), "status": "USER_CANCELED"}))
    assert tuner.state()["learned"] == 4


def _fields(item: object) -> dict[str, object]:
    return {name: getattr(item, name) for name in ("parameter_id", "parameters", "value", "status", "trial_id")}


def test_imported_results_without_budget_get_largest() -> None:
    tuner = new(LINE, max_budget=9, random_fraction=0)
    tuner.import_data([{"parameter": {"x": 0.2 + number / 1000}, "value": number} for number in range(20)])
    assert tuner.state()["learned"] == 20
    assert mean(float(str(tuner.propose(number)["x"])) for number in range(20)) < 0.6


def test_a_branch_that_no_trial_has_does_not_matter() -> None:
    tuner = new({"model": NESTED}, max_budget=1, random_fraction=0)
    for number in range(40):
        parameters = tuner.propose(number)
        tuner.learn(result(number, parameters, 1.0 if "lr" in str(parameters) else 2.0))
    assert str([tuner.propose(number) for number in range(40, 60)]).count("lr") > 10


def test_budgets_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(InvalidInput, match="min_budget: 9 is greater than max_budget 3; swap them"):
        BOHB(min_budget=9)


def test_density_uses_gaussian_and_aitchison_aitken_kernels() -> None:
    points = numpy.array([[0.2, 0], [0.4, 0], [0.6, 2]])
    density = Density(points, [0, 3], 1e-3)
    width, share = density.widths
    assert width == pytest.approx(1.06 * numpy.std([0.2, 0.4, 0.6]) * 3 ** (-1 / 6))
    gauss = [math.exp(-(((0.3 - x) / width) ** 2) / 2) / (width * math.sqrt(2 * math.pi)) for x in (0.2, 0.4, 0.6)]
    expected = (gauss[0] * (1 - share) + gauss[1] * (1 - share) + gauss[2] * share / 2) / 3
    assert math.exp(density.logarithm(numpy.array([[0.3, 0]]))[0]) == pytest.approx(expected)


def test_draws_from_density_are_in_range() -> None:
    source = numpy.random.default_rng(1)
    density = Density(numpy.array([[0.0, 1], [1.0, 0]]), [0, 2], 1e-3)
    drawn = density.draw(500, 1e9, source)
    assert drawn[:, 0].min() >= 0 and drawn[:, 0].max() <= 1 and set(drawn[:, 1]) == {0.0, 1.0}


def test_values_that_are_missing_are_those_of_other_points() -> None:
    source = numpy.random.default_rng(1)
    nan = math.nan
    whole = filled(numpy.array([[0.25, nan, nan], [nan, nan, 1]]), [0, 0, 4], source)
    assert whole[1, 0] == 0.25 and whole[0, 2] == 1 and (0 <= whole[:, 1]).all() and (whole[:, 1] <= 1).all()
