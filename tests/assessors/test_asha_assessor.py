"""ASHA: rungs as published, one of `eta` goes on."""

from __future__ import annotations

import math

import pytest

from nni_manager.assessors.asha import ASHA

pytestmark = pytest.mark.unit


def rungs(assessor: ASHA, steps: int) -> list[int]:
    """The steps at which a trial that is worse than another one is stopped."""
    assessor.trial_end("good", True, [9.0] * steps)
    return [step for step in range(1, steps + 1) if not assessor.judge("bad", [1.0] * step)]


def test_rungs_are_powers_of_eta() -> None:
    assert rungs(ASHA(eta=3), 100) == [1, 3, 9, 27, 81]
    assert rungs(ASHA(eta=4, min_steps=2), 100) == [2, 8, 32]
    assert rungs(ASHA(eta=3, early_stopping_rate=2), 100) == [9, 27, 81]
    assert rungs(ASHA(eta=3, max_steps=27), 100) == [1, 3, 9]


def test_one_of_eta_trials_continues() -> None:
    """As each comes, it is compared with those that are there."""
    assessor = ASHA(eta=2, optimize_mode="minimize")
    losses = [5, 6, 4, 3, 7, 2, 3.5, 1]
    assert [assessor.judge(str(loss), [loss]) for loss in losses] == [
        True,  # the only one
        False,
        True,  # the best of three
        True,  # the best of four
        False,
        True,
        True,  # third of seven: three go on
        True,
    ]


def test_the_direction_is_the_one_that_is_said() -> None:
    assessor = ASHA(optimize_mode="maximize")
    assert assessor.judge("a", [1.0]) and assessor.judge("b", [2.0]) and not assessor.judge("c", [1.5])


def test_non_numeric_value_counts_as_worst() -> None:
    assessor = ASHA(eta=2)
    assert assessor.judge("a", [1.0])
    assert not assessor.judge("b", [math.nan]) and not assessor.judge("c", ["text"]) and not assessor.judge("d", [{}])
    assert assessor.judge("e", [{"default": 2.0}])


def test_a_trial_that_is_judged_twice_counts_once() -> None:
    assessor = ASHA(eta=2)
    for _ in range(5):
        assert assessor.judge("a", [1.0])
    assert not assessor.judge("b", [0.5])


def test_rungs_are_refilled_from_ended_trials_after_restart() -> None:
    assessor = ASHA(eta=2)
    assessor.trial_end("a", False, [3.0, 4.0, 5.0, 6.0])
    assessor.trial_end("b", True, [2.0])
    assessor.trial_end("none", True, [])
    assert not assessor.judge("c", [2.5]) and assessor.judge("d", [9.0])
    assert not assessor.judge("d", [9.0, 1.0]) and assessor.judge("e", [0.0, 8.0])


def test_rungs_go_by_reported_steps() -> None:
    """Results at steps 0, 5, 10 … pass the rungs 4 and 16 between two of them."""
    assessor = ASHA(eta=4)
    steps = [0, 5, 10, 15, 20]
    assessor.trial_end("good", True, [9.0] * 5, steps)
    judged = [assessor.judge("bad", [1.0] * count, steps[:count]) for count in range(1, 6)]
    assert judged == [False, False, True, False, True]


def test_continued_trial_is_judged_at_the_rung_of_its_step() -> None:
    assessor = ASHA(eta=4)
    assessor.trial_end("good", True, [9.0] * 20)
    assert assessor.judge("again", [1.0, 1.0], [13, 14]) and not assessor.judge("again", [1.0] * 3, [13, 14, 15])
