"""Hyperband: brackets and budgets as published, whatever fails, and after a restart at any moment."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping

import pytest

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.space.parameters import ParameterSource
from nni_manager.domain.space.search_space import parse
from nni_manager.tuners.brackets import largest, rounds_of
from nni_manager.tuners.contract import Pending, Result, Tuner
from nni_manager.tuners.hyperband import BUDGET, Hyperband
from nni_manager.tuners.testing import SPACES, Space, TunerContract, dimension, result, through_json

pytestmark = pytest.mark.unit

LINE = {"x": dimension("uniform", 0, 1)}


def in_space_with_budget(space: Space, parameters: object) -> bool:
    assert isinstance(parameters, Mapping)
    config = {name: value for name, value in parameters.items() if name != BUDGET}
    return parse(space).contains(config) and parameters[BUDGET] > 0


def spaces_of_many() -> dict[str, Space]:
    """Those in which configurations hardly repeat: of equal ones it cannot be known which was promoted."""
    return {name: space for name, space in SPACES.items() if name != "choice"} | {
        "choice": {"x": SPACES["choice"]["x"], "y": dimension("uniform", 0, 1)}
    }


class TestHyperband(TunerContract):
    def make(self) -> Tuner:
        return Hyperband(R=9, seed=3)

    def spaces(self) -> dict[str, Space]:
        return spaces_of_many()

    def contains(self, space: Space, parameters: object) -> bool:
        return in_space_with_budget(space, parameters)


class TestSerialHyperband(TunerContract):
    proposals = 9  # what runs at a time: the first round of the first bracket
    seeded = False  # while it runs there is no next one; the test of a killed tuner covers this

    def make(self) -> Tuner:
        return Hyperband(R=9, seed=3, exec_mode="serial")

    def contains(self, space: Space, parameters: object) -> bool:
        return in_space_with_budget(space, parameters)

    def test_late_odd_and_foreign_results_are_tolerated(self) -> None:
        """The last proposal needs results that are usable."""
        tuner = new(R=9, exec_mode="serial")
        tuner.learn(result(None, {"no such": "dimension"}, 1.0))
        tuner.import_data([{"parameter": "nonsense", "value": None}])
        assert len(tuner.propose_many(range(20)).proposals) == 9


def new(space: Space = LINE, **arguments: object) -> Hyperband:
    tuner = Hyperband(**{"seed": 1, **arguments})  # type: ignore[arg-type]
    tuner.update_search_space(space)
    return tuner


def test_the_brackets_are_those_of_the_paper() -> None:
    """JMLR 18 (2018), Algorithm 1 with R = 81 and eta = 3."""
    brackets = [[(one.count, one.budget) for one in rounds_of(s, 4, 3, 81)] for s in range(4, -1, -1)]
    assert largest(81, 3) == 4
    assert brackets == [
        [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
        [(34, 3), (11, 9), (3, 27), (1, 81)],
        [(15, 9), (5, 27), (1, 81)],
        [(8, 27), (2, 81)],
        [(5, 81)],
    ]


@pytest.mark.parametrize(("most", "eta", "s_max"), [(1, 3, 0), (2, 3, 0), (1000, 10, 3), (243, 3, 5), (60, 3, 3)])
def test_number_of_brackets_ignores_rounding_errors(most: int, eta: int, s_max: int) -> None:
    assert largest(most, eta) == s_max


def test_budgets_are_whole_numbers_as_in_nni() -> None:
    assert [one.budget for one in rounds_of(3, 3, 3, 60)] == [2, 6, 20, 60]


def run_all(tuner: Hyperband, count: int, at_a_time: int, failing: float) -> list[dict[str, object]]:
    """Runs this many trials, which end in any order; a share of them fails."""
    source = random.Random(7)
    proposed: list[dict[str, object]] = []
    running: list[int] = []
    while len(proposed) < count:
        wanted = min(at_a_time - len(running), count - len(proposed))
        made = tuner.propose_many(range(len(proposed), len(proposed) + wanted)).proposals
        running += [number for number, _ in made]
        proposed += [parameters for _, parameters in made]  # type: ignore[misc]
        assert running, "nothing runs, so there is something to propose"
        number = running.pop(source.randrange(len(running)))
        tuner.learn(result(number, proposed[number], None if source.random() < failing else value(number)))
    return proposed


def value(number: int) -> float:
    return number * 37 % 101


@pytest.mark.parametrize("mode", ["serial", "parallelism"])
@pytest.mark.parametrize("at_a_time", [1, 4, 50])
def test_one_cycle_has_the_trials_of_all_brackets(mode: str, at_a_time: int) -> None:
    wanted = Counter(one.budget for s in range(4) for one in rounds_of(s, 3, 3, 27) for _ in range(one.count))
    proposed = run_all(new(R=27, exec_mode=mode), sum(wanted.values()), at_a_time, failing=0)
    if mode == "serial" or at_a_time == 1:
        assert Counter(one[BUDGET] for one in proposed) == wanted
    else:  # the last ones are of brackets that began while others ran
        assert Counter(one[BUDGET] for one in proposed)[1] >= wanted[1]


@pytest.mark.parametrize("mode", ["serial", "parallelism"])
def test_failing_trials_never_end_it(mode: str) -> None:
    assert len(run_all(new(R=27, exec_mode=mode), 400, 5, failing=0.5)) == 400


def test_the_best_of_a_round_are_promoted() -> None:
    tuner = new(R=9, optimize_mode="minimize", exec_mode="serial")
    first = dict(tuner.propose_many(range(20)).proposals)
    assert [one[BUDGET] for one in first.values()] == [1] * 9
    for number, parameters in first.items():
        tuner.learn(result(number, parameters, (number * 5) % 9))
    second = [parameters for _, parameters in tuner.propose_many(range(20, 40)).proposals]
    best = sorted(first, key=lambda number: (number * 5) % 9)[:3]
    assert second == [{**first[number], BUDGET: 3} for number in best]


def test_failed_trials_are_not_promoted() -> None:
    tuner = new(R=9, exec_mode="serial")
    first = dict(tuner.propose_many(range(9)).proposals)
    for number, value in enumerate([None, 1.0, math.nan, None, 2.0, None, math.inf, "text", None]):
        tuner.learn(result(number, first[number], value))
    assert tuner.propose_many(range(10, 20)).proposals == [
        (10, {**first[4], BUDGET: 3}),
        (11, {**first[1], BUDGET: 3}),
    ]


def test_next_bracket_starts_if_all_failed() -> None:
    tuner = new(R=9, exec_mode="serial")
    for number, parameters in tuner.propose_many(range(9)).proposals:
        tuner.learn(result(number, parameters, None))
    assert [one[BUDGET] for _, one in tuner.propose_many(range(20, 40)).proposals] == [3] * 5


def test_parallel_bracket_starts_after_promotions() -> None:
    tuner = new(R=9)
    proposed = dict(tuner.propose_many(range(11)).proposals)
    assert [one[BUDGET] for one in proposed.values()] == [1] * 9 + [3] * 2
    for number in range(9):
        tuner.learn(result(number, proposed[number], float(number)))
    after = [parameters for _, parameters in tuner.propose_many(range(20, 24)).proposals]
    assert after[:3] == [{**proposed[number], BUDGET: 3} for number in (8, 7, 6)]
    assert after[3][BUDGET] == 3 and after[3] not in after[:3]


@pytest.mark.parametrize("mode", ["serial", "parallelism"])
@pytest.mark.parametrize("ended", [0, 3, 9, 11, 12, 13, 17, 22, 30])
def test_killed_tuner_continues_its_bracket(mode: str, ended: int) -> None:
    """At every moment, with four trials at a time: what comes next is what would have come."""
    steady = new(R=9, exec_mode=mode, optimize_mode="minimize")
    source = random.Random(ended)
    proposed: dict[int, dict[str, object]] = {}
    running: list[int] = []
    history: list[Result] = []
    number = 0

    def fill(tuner: Hyperband, upto: int) -> list[tuple[int, object]]:
        batch = tuner.propose_many(range(number, number + upto))
        return list(batch.proposals)

    while len(history) < ended or not running:
        for id_, parameters in fill(steady, 4 - len(running)):
            proposed[id_] = parameters  # type: ignore[assignment]
            running.append(id_)
        number += 4
        if len(history) < ended:
            id_ = running.pop(source.randrange(len(running)))
            history.append(result(id_, proposed[id_], None if source.random() < 0.2 else source.random()))
            steady.learn(history[-1])
    pending = [Pending(parameter_id=id_, parameters=proposed[id_], trial_id=f"t{id_}") for id_ in sorted(running)]
    restored = new(R=9, exec_mode=mode, optimize_mode="minimize")
    restored.restore(history=[through(one) for one in history], unfinished=pending, imported=[])
    for id_ in running:
        for tuner in (steady, restored):
            tuner.learn(result(id_, proposed[id_], float(id_)))
    assert fill(restored, 30) == fill(steady, 30)


def through(one: Result) -> Result:
    return result(one.parameter_id, through_json(one.parameters), one.value)


def test_a_proposal_that_became_no_trial_is_made_again() -> None:
    tuner = new(R=9, exec_mode="serial")
    proposed = dict(tuner.propose_many(range(9)).proposals)
    restored = new(R=9, exec_mode="serial")
    history = [result(number, proposed[number], 1.0) for number in range(7)]
    restored.restore(history=history, unfinished=[], imported=[])
    assert [one[BUDGET] for _, one in restored.propose_many(range(9, 20)).proposals] == [1, 1]


def test_user_trial_is_in_no_bracket() -> None:
    given = Result(
        parameter_id=3,
        parameters={"x": 0.5, BUDGET: 1},
        value=1.0,
        status=result(0, {}, 1.0).status,
        trial_id="tgiven",
        source=ParameterSource.CUSTOMIZED,
    )
    tuner = new(R=9, exec_mode="serial")
    tuner.restore(history=[given], unfinished=[], imported=[])
    assert len(tuner.propose_many(range(10, 30)).proposals) == 9


def test_other_search_space_restarts_brackets() -> None:
    tuner = new(R=9, exec_mode="serial")
    for number, parameters in tuner.propose_many(range(9)).proposals:
        tuner.learn(result(number, parameters, 1.0))
    tuner.update_search_space({"y": dimension("uniform", 0, 1)})
    assert [set(one) for _, one in tuner.propose_many(range(20, 40)).proposals] == [{"y", BUDGET}] * 9


def test_a_dimension_of_the_budget_s_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"searchSpace\.TRIAL_BUDGET: this name is reserved for"):
        Hyperband().update_search_space({BUDGET: dimension("choice", 1)})


def test_small_choice_can_repeat_after_restart() -> None:
    space = {"x": SPACES["choice"]["x"]}
    wanted = Counter(one.budget for s in range(3) for one in rounds_of(s, 2, 3, 9) for _ in range(one.count))
    proposed = run_all(new(space, R=9, exec_mode="serial"), 20, 4, failing=0)
    history = [result(number, parameters, value(number)) for number, parameters in enumerate(proposed)]
    restored = new(space, R=9, exec_mode="serial")
    restored.restore(history=history, unfinished=[], imported=[])
    counts = Counter(one[BUDGET] for one in proposed)
    for number in range(20, sum(wanted.values())):
        parameters = restored.propose(number)
        counts[parameters[BUDGET]] += 1
        restored.learn(result(number, parameters, value(number)))
    assert counts == wanted


def test_promoted_trial_continues_smaller_budget() -> None:
    tuner = new(R=3, eta=3, exec_mode="serial")
    configs = [tuner.propose(number) for number in range(3)]
    assert [tuner.continues(number) for number in range(3)] == [None] * 3
    for number, config in enumerate(configs):
        tuner.learn(result(number, config, number))
    tuner.propose(3)
    assert tuner.continues(3) == 2
