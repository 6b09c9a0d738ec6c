"""What tells that the wall clock was set."""

import pytest

from nni_manager.domain.clock import ClockSteps, apart_ms, now_ms

pytestmark = pytest.mark.unit


class Clocks:
    """Two that go alike until one is set."""

    def __init__(self) -> None:
        self.wall_ms, self.steady_ms = 1_000_000, 5_000
        #: How long the reader is not scheduled after each look at the wall.
        self.pause_ms = 0

    def pass_by(self, ms: int) -> None:
        self.wall_ms += ms
        self.steady_ms += ms

    def wall(self) -> int:
        seen = self.wall_ms
        self.pass_by(self.pause_ms)
        return seen

    def steps(self) -> ClockSteps:
        return ClockSteps(self.wall, lambda: self.steady_ms)


def test_clock_step_is_reported_once() -> None:
    clocks = Clocks()
    steps = clocks.steps()
    clocks.pass_by(100_000)
    assert steps.since_last_look() == 0
    clocks.wall_ms += 3_600_000
    clocks.pass_by(50)
    assert (steps.since_last_look(), steps.since_last_look()) == (3_600_000, 0)
    clocks.wall_ms -= 7_200_000
    assert (steps.since_last_look(), steps.since_last_look()) == (-7_200_000, 0)


def test_small_clock_steps_are_reported_when_they_add_up() -> None:
    clocks = Clocks()
    steps = clocks.steps()
    told = []
    for _ in range(4):
        clocks.wall_ms += 400
        told.append(steps.since_last_look())
    assert told == [0, 0, 1200, 0]


def test_suspended_reader_reports_no_step() -> None:
    clocks = Clocks()
    steps = clocks.steps()
    clocks.wall_ms += 2_000
    clocks.pause_ms = 1_500
    assert steps.since_last_look() == 0
    clocks.pause_ms = 0
    assert steps.since_last_look() == 2_000


def test_real_clocks_advance_alike() -> None:
    assert ClockSteps(now_ms).since_last_look() == 0


def test_two_clocks_are_read_at_one_moment() -> None:
    """A process that has to wait between the two looks again."""
    shown = iter([1_000, 1_300, 1_400, 1_400])
    assert apart_ms(wall=lambda: 51_400, steady=lambda: next(shown)) == 50_000


def test_unread_step_is_still_reported() -> None:
    clocks = Clocks()
    steps = clocks.steps()
    clocks.wall_ms += 3_600_000
    assert (steps.not_told_yet, steps.not_told_yet) == (3_600_000, 3_600_000)
    assert (steps.since_last_look(), steps.not_told_yet) == (3_600_000, 0)
