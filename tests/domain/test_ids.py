"""Ids, and job names that can never be taken for another job's."""

from __future__ import annotations

import re
from itertools import islice

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nni_manager.domain.ids import (
    EXPERIMENT_ID,
    TRIAL_ID,
    attempt_directory,
    job_name,
    new_experiment_id,
    new_trial_ids,
)

pytestmark = pytest.mark.unit

JOBS = st.tuples(
    st.from_regex(EXPERIMENT_ID, fullmatch=True), st.from_regex(TRIAL_ID, fullmatch=True), st.integers(1, 12)
)


def test_new_ids_have_the_documented_shape() -> None:
    assert re.fullmatch("[a-z0-9]{8}", new_experiment_id())
    for id_ in islice(new_trial_ids(), 200):
        assert re.fullmatch("[a-z][a-z0-9]{4}", id_)


def test_new_ids_differ() -> None:
    assert len({new_experiment_id() for _ in range(100)}) == 100
    assert len(set(islice(new_trial_ids(), 1000))) > 990  # 43 million to choose from
    assert {id_[0] for id_ in islice(new_trial_ids(), 2000)} == set("abcdefghijklmnopqrstuvwxyz")


def test_the_documented_job_name() -> None:
    assert job_name("exp1", "abcde", 1) == "nni_exp_exp1_trial_abcde"
    assert job_name("exp1", "abcde", 2) == "nni_exp_exp1_trial_abcde-2"
    assert attempt_directory("abcde", 1) == "abcde"
    assert attempt_directory("abcde", 3) == "abcde-3"


@given(JOBS, JOBS)
def test_two_jobs_never_share_a_name(one: tuple[str, str, int], other: tuple[str, str, int]) -> None:
    assume(one != other)
    assert job_name(*one) != job_name(*other)
    assert one[1:] == other[1:] or attempt_directory(*one[1:]) != attempt_directory(*other[1:])


@given(JOBS, JOBS)
def test_experiment_id_like_a_job_name_is_unambiguous(job: tuple[str, str, int], other: tuple[str, str, int]) -> None:
    disguised = (f"{job[0]}_trial_{other[1]}", *job[1:])
    assert job_name(*disguised) not in (job_name(*job), job_name(job[0], *other[1:]))


@pytest.mark.parametrize("id_", ["", "a b", "a/b", "..", "x" * 33, "ä"])
def test_invalid_experiment_id_is_refused(id_: str) -> None:
    assert EXPERIMENT_ID.fullmatch(id_) is None
