"""What a start that fails takes back: all of it, the last first."""

from __future__ import annotations

import pytest

from trial_runner.keeper.jobs.undo import Undo

pytestmark = pytest.mark.unit


def test_steps_are_taken_backwards_when_it_fails() -> None:
    taken: list[int] = []
    with pytest.raises(ValueError, match="no"), Undo() as undo:
        undo.add(taken.append, 1)
        undo.add(taken.append, 2)
        raise ValueError("no")
    assert taken == [2, 1]


def test_success_runs_no_undo_steps() -> None:
    taken: list[int] = []
    with Undo() as undo:
        undo.add(taken.append, 1)
    assert taken == []


def test_a_step_that_fails_leaves_no_other_out() -> None:
    taken: list[int] = []

    def fail() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"), Undo() as undo:
        undo.add(taken.append, 1)
        undo.add(fail)
        undo.add(taken.append, 2)
        raise ValueError("no")
    assert taken == [2, 1]
