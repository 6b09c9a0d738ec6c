"""Assessors on recorded learning curves: a small part of `python -m tests.benchmarks.assessors`."""

from __future__ import annotations

import pytest

from tests.benchmarks.assessors.__main__ import ours, outcomes
from tests.benchmarks.assessors.record import EPOCHS
from tests.benchmarks.assessors.replay import Curve, Outcome, curves, replay

pytestmark = pytest.mark.unit


class Nothing:
    """Stops the trials with these numbers at their second value."""

    def __init__(self, *stopped: int) -> None:
        self._stopped = {f"t{number}" for number in stopped}

    def goes_on(self, trial: str, history: Curve) -> bool:
        return len(history) < 2 or trial not in self._stopped

    def end(self, trial: str, history: Curve, *, is_whole: bool) -> None:
        assert is_whole == (trial not in self._stopped)


def test_the_recorded_curves_are_whole() -> None:
    found = curves()
    assert len(found) == 120 and {len(one) for one in found} == {EPOCHS}
    assert all(0 <= value <= 1 for one in found for value in one)


def test_what_a_replay_counts() -> None:
    known = [[0.0, 0.0, number / 20] for number in range(20)]
    outcome = replay(known, Nothing(0, 1, 19), seed=1)
    assert (outcome.bad_stopped, outcome.best_kept) == (0.2, 0.5)
    assert outcome.saved == pytest.approx(3 / 60) and outcome.lost == pytest.approx(0.05)


@pytest.mark.parametrize("name", ["Medianstop", "Curvefitting", "Optuna's MedianPruner"])
def test_bad_trials_are_stopped_and_time_is_saved(name: str) -> None:
    [outcome] = outcomes(dict(ours())[name], curves()[::2], 1)
    assert outcome.bad_stopped > 0.6 and outcome.saved > 0.25 and outcome.lost < 0.05


def test_curvefitting_keeps_the_best() -> None:
    found: list[Outcome] = outcomes(dict(ours())["Curvefitting"], curves()[::2], 3)
    assert [outcome.best_kept for outcome in found] == [1.0] * 3
