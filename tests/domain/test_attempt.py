"""The record of an attempt: its handle, its end and its wait reason, as they were stored."""

from __future__ import annotations

import pytest

from nni_manager.domain.attempt import INTENT, Attempt, Observation
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait, WaitCode

pytestmark = pytest.mark.unit

HANDLE = JobHandle(platform="local", version=3, job_name="j", data='{"deep": "ä"}')


def attempt(state: str, **fields: object) -> Attempt:
    return Attempt("aaaaa", 1, "j", state)._replace(**fields)


def test_an_intent_has_neither_handle_nor_end() -> None:
    intent = Attempt("aaaaa", 1, "j")
    assert (intent.state, intent.end, intent.wait, intent.has_ended) == (INTENT, None, None, False)
    with pytest.raises(AssertionError):
        _ = intent.job_handle


def test_handle_survives_its_text() -> None:
    assert attempt("PENDING", handle=HANDLE.text).job_handle == HANDLE


@pytest.mark.parametrize("state", JobState)
def test_only_a_final_state_of_the_platform_is_an_end(state: JobState) -> None:
    found = attempt(state, exit_code=1, native_reason="OOMKilled", cause="OUT_OF_MEMORY", message="m", ended_ms=5)
    told = Observation(
        state=state, exit_code=1, native_reason="OOMKilled", cause=Reason.OUT_OF_MEMORY, message="m", ended_ms=5
    )
    assert found.end == (told if state.is_final else None)
    assert found.has_ended is found.has_ended_there is state.is_final


def test_report_of_the_runner_is_an_end() -> None:
    found = attempt("RUNNING", runner_exit='{"exitCode": 0}')
    assert found.has_ended and not found.has_ended_there and found.end is None


def test_wait_reason_is_read_from_the_attempt() -> None:
    found = attempt("PENDING", wait_code="GPU", wait_sentence="gpu 0 is busy", wait_details='{"gpu": 0}')
    assert found.wait == Wait(code=WaitCode.GPU, sentence="gpu 0 is busy", details={"gpu": 0})


@pytest.mark.parametrize(
    ("state", "final_seen_ms", "is_heard"), [("LOST", None, False), ("LOST", 5, True), ("RUNNING", None, True)]
)
def test_lost_job_that_reports_is_heard_again(state: str, final_seen_ms: int | None, is_heard: bool) -> None:
    assert attempt(state, final_seen_ms=final_seen_ms).is_heard_again is is_heard
