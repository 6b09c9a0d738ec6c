"""Missing jobs of polled services: two complete rounds a minute apart, and no other way, make one lost."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nni_manager.domain.job import JobHandle
from nni_manager.platform_kit.confirmed_loss import APART_S, ConfirmedLoss

pytestmark = pytest.mark.unit

#: What a round says of the job.
FOUND, MISSING, UNANSWERED, EXIT = "found", "missing", "unanswered", "exit"
ROUNDS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.5, 20.0, 59.5, 60.0, 3600.0]), st.sampled_from([FOUND, MISSING, UNANSWERED, EXIT])
    ),
    max_size=12,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def told(loss: ConfirmedLoss, what: str, name: str = "a") -> bool:
    """Whether the job is lost after a round that says this of it."""
    if what == FOUND:
        loss.found(name)
        return False
    return loss.is_lost(name, has_exit=what == EXIT, all_answered=what != UNANSWERED)


def expected(rounds: Sequence[tuple[float, str]]) -> list[bool]:
    """By the rule itself, over the whole past."""
    now_s, past, found = 0.0, list[tuple[float, str]](), []
    for wait_s, what in rounds:
        now_s += wait_s
        since = [index for index, (_, before) in enumerate(past) if before in (FOUND, EXIT)]
        recent = past[since[-1] + 1 :] if since else past
        found.append(what == MISSING and any(w == MISSING and now_s - at_s >= APART_S for at_s, w in recent))
        past.append((now_s, what))
    return found


@given(ROUNDS)
def test_job_is_lost_by_two_complete_rounds_alone(rounds: list[tuple[float, str]]) -> None:
    clock = Clock()
    loss = ConfirmedLoss(clock)
    answers = []
    for wait_s, what in rounds:
        clock.now_s += wait_s
        answers.append(told(loss, what))
    assert answers == expected(rounds)


@given(ROUNDS, ROUNDS)
def test_jobs_do_not_affect_each_other(of_a: list[tuple[float, str]], of_b: list[tuple[float, str]]) -> None:
    clock = Clock()
    loss = ConfirmedLoss(clock)
    answers = []
    for (wait_s, what), (_, other) in zip(of_a, of_b, strict=False):
        clock.now_s += wait_s
        told(loss, other, "b")
        answers.append(told(loss, what))
    assert answers == expected(of_a[: len(answers)])


def test_forgotten_job_starts_anew() -> None:
    clock = Clock()
    loss = ConfirmedLoss(clock)
    told(loss, MISSING)
    loss.forget("a")
    clock.now_s += APART_S
    assert not told(loss, MISSING)
    clock.now_s += APART_S
    assert told(loss, MISSING)


@given(st.integers(1, 40), st.integers(1, 7))
def test_every_unlisted_job_is_queried_in_turn(count: int, most: int) -> None:
    handles = [JobHandle(platform="fake", version=1, job_name=f"j{number}") for number in range(count)]
    loss = ConfirmedLoss(Clock(), most=most)
    for _ in range(3):
        rounds = [loss.due(handles) for _ in range(math.ceil(count / most))]
        assert all(len(one) == min(most, count) for one in rounds)
        assert {handle for one in rounds for handle in one} == set(handles)
