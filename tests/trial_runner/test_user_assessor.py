"""A user's assessor: called as NNI calls it."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from trial_runner.tuner_host.user_tuner import UserAssessor

pytestmark = pytest.mark.unit


class AssessResult(Enum):
    """As `nni.assessor` has it."""

    Good = True
    Bad = False


class Recorder:
    def __init__(self, answer: Any = AssessResult.Good) -> None:
        self.answer = answer
        self.calls: list[tuple[Any, ...]] = []

    def assess_trial(self, trial_id: str, history: Any) -> Any:
        self.calls.append(("assess", trial_id, history))
        return self.answer

    def trial_end(self, trial_id: str, success: bool) -> None:
        self.calls.append(("end", trial_id, success))


def assessed(trial_id: str, *histories: list[object]) -> list[tuple[Any, ...]]:
    return [("assess", trial_id, history) for history in histories]


@pytest.mark.parametrize(
    ("answer", "good"), [(AssessResult.Good, True), (AssessResult.Bad, False), (True, True), (False, False)]
)
def test_answers_can_be_results_or_booleans(answer: Any, good: bool) -> None:
    assert UserAssessor(Recorder(answer)).judge("a", [1]) is good


@pytest.mark.parametrize("answer", [None, 1, "Good"])
def test_any_other_answer_is_an_error_that_says_so(answer: Any) -> None:
    with pytest.raises(TypeError, match=r"AssessResult\.Good"):
        UserAssessor(Recorder(answer)).judge("a", [1])


def test_values_are_handed_on_as_reported() -> None:
    user = Recorder()
    UserAssessor(user).judge("a", ({"default": 1}, 2))
    assert user.calls == [("assess", "a", [{"default": 1}, 2])]


def test_assessor_has_all_values_before_the_end() -> None:
    user = Recorder()
    assessor = UserAssessor(user)
    assessor.judge("a", [1])
    assessor.trial_end("a", True, [1])
    assessor.trial_end("b", False, [1, 2])
    assert user.calls == [("assess", "a", [1]), ("end", "a", True), *assessed("b", [1], [1, 2]), ("end", "b", False)]


def test_values_with_the_end_are_reported_one_by_one() -> None:
    """As in NNI, where classes count their calls or start over at the first value."""
    user = Recorder()
    assessor = UserAssessor(user)
    assessor.judge("a", [1])
    assessor.trial_end("a", True, [1, 2, 3])
    assert user.calls == [*assessed("a", [1], [1, 2], [1, 2, 3]), ("end", "a", True)]


def test_begin_and_end_hooks_are_called_if_defined() -> None:
    user = Recorder()
    user.load_checkpoint, user._on_exit = lambda: user.calls.append(("load",)), lambda: user.calls.append(("exit",))  # type: ignore[attr-defined]
    for assessor in (UserAssessor(user), UserAssessor(object())):
        assessor.load_checkpoint()
        assessor.close()
    assert user.calls == [("load",), ("exit",)]


def test_trials_without_values_are_not_mentioned() -> None:
    user = Recorder()
    UserAssessor(user).trial_end("a", True, [])
    assert user.calls == []


def test_trial_end_method_is_optional() -> None:
    user = Recorder()
    user.trial_end = None  # type: ignore[assignment,method-assign]
    UserAssessor(user).trial_end("a", True, [1])
    assert user.calls == [("assess", "a", [1])]
