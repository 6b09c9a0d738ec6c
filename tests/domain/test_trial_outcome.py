"""How trials end: every cell of the outcome table, and the reasons and sentences that go with it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.trial import Outcome, StopRequest, explain, failure_reason, outcome, reason_in_words
from nni_manager.domain.trial_status import OPEN_STATUSES, TrialStatus
from trial_runner import protocol

pytestmark = pytest.mark.unit

EXIT_0 = Observation(state=JobState.SUCCEEDED, exit_code=0)
EXIT_1 = Observation(state=JobState.FAILED, exit_code=1)
SIGNALLED = Observation(state=JobState.FAILED, signal=15)
MEMORY = Observation(state=JobState.FAILED, exit_code=137, native_reason="OOMKilled", cause=Reason.OUT_OF_MEMORY)
GPU_MEMORY = Observation(state=JobState.FAILED, exit_code=1, stderr_tail="RuntimeError: CUDA out of memory. Tried …")
PREEMPTED = Observation(state=JobState.PREEMPTED)
REMOVED = Observation(state=JobState.CANCELLED)
LOST = Observation(state=JobState.LOST)
REFUSED = Observation(state=JobState.FAILED, cause=Reason.SUBMIT_REJECTED, message="no such queue")
UNSTARTED = Observation(state=JobState.FAILED, exit_code=126, cause=Reason.RUNNER_FAILED, message="no such folder")
OTHER_PYTHON = f"a warning\n{protocol.OTHER_PYTHON_MARK}3.11, and this is Python 3.9 (/usr/bin/python3): put it …\n"
TOO_LONG = Observation(
    state=JobState.FAILED, signal=15, cause=Reason.TIMEOUT, message="the limit of 1 h is over; raise timeLimit"
)
MISMATCH = Observation(state=JobState.FAILED, cause=Reason.VERSION_MISMATCH, message="trial runs 0.5, manager 0.6")

EVIDENCE = {
    "exit 0": EXIT_0,
    "exit 1": EXIT_1,
    "signal": SIGNALLED,
    "memory": MEMORY,
    "gpu memory": GPU_MEMORY,
    "preempted": PREEMPTED,
    "uncounted": replace(PREEMPTED, is_uncounted=True),
    "removed": REMOVED,
    "lost": LOST,
    "refused": REFUSED,
    "mismatch": MISMATCH,
    "too long": TOO_LONG,
    "unstarted": UNSTARTED,
}

STOPPED = {
    StopRequest.USER: ("USER_CANCELED", "USER_REQUEST"),
    StopRequest.ASSESSOR: ("EARLY_STOPPED", "ASSESSOR"),
    StopRequest.TIMEOUT: ("EARLY_STOPPED", "TIMEOUT"),
    StopRequest.EXPERIMENT_STOPPED: ("USER_CANCELED", "EXPERIMENT_STOPPED"),
}
#: (evidence, attempts left on both accounts) → outcome without a request to stop.
UNASKED = {
    ("exit 0", 0): ("SUCCEEDED", ""),
    ("exit 0", 1): ("SUCCEEDED", ""),
    ("exit 1", 0): ("FAILED", "USER_CODE"),
    ("exit 1", 1): ("WAITING", "USER_CODE"),
    ("signal", 0): ("FAILED", "USER_CODE"),
    ("signal", 1): ("WAITING", "USER_CODE"),
    ("memory", 0): ("FAILED", "OUT_OF_MEMORY"),
    ("memory", 1): ("WAITING", "OUT_OF_MEMORY"),
    ("gpu memory", 0): ("FAILED", "GPU_OUT_OF_MEMORY"),
    ("gpu memory", 1): ("WAITING", "GPU_OUT_OF_MEMORY"),
    ("preempted", 0): ("SYS_CANCELED", "PREEMPTED"),
    ("preempted", 1): ("WAITING", "PREEMPTED"),
    ("uncounted", 0): ("WAITING", "PREEMPTED"),
    ("uncounted", 1): ("WAITING", "PREEMPTED"),
    ("removed", 0): ("SYS_CANCELED", "CANCELLED_THERE"),
    ("removed", 1): ("SYS_CANCELED", "CANCELLED_THERE"),
    ("lost", 0): ("SYS_CANCELED", "LOST"),
    ("lost", 1): ("WAITING", "LOST"),
    ("refused", 0): ("FAILED", "SUBMIT_REJECTED"),
    ("refused", 1): ("FAILED", "SUBMIT_REJECTED"),
    ("too long", 0): ("FAILED", "TIMEOUT"),
    ("too long", 1): ("WAITING", "TIMEOUT"),
    ("unstarted", 0): ("FAILED", "RUNNER_FAILED"),
    ("unstarted", 1): ("WAITING", "RUNNER_FAILED"),
    ("mismatch", 0): ("FAILED", "VERSION_MISMATCH"),
    ("mismatch", 1): ("FAILED", "VERSION_MISMATCH"),
}
#: Evidence that counts with any request to stop.
STRONGER_THAN_A_STOP = {"exit 0": ("SUCCEEDED", ""), "mismatch": ("FAILED", "VERSION_MISMATCH")}
ASKED = {
    (evidence, asked, left): STRONGER_THAN_A_STOP.get(evidence, STOPPED[asked])
    for evidence, asked, left in itertools.product(EVIDENCE, StopRequest, (0, 1))
}


@pytest.mark.parametrize(("evidence", "left"), UNASKED)
def test_outcome_without_stop_request(evidence: str, left: int) -> None:
    status, reason = UNASKED[evidence, left]
    found = outcome(EVIDENCE[evidence], None, platform_retries=left, user_retries=left)
    assert found == Outcome(status=TrialStatus(status), reason=Reason(reason))


@pytest.mark.parametrize(("evidence", "asked", "left"), ASKED)
def test_outcome_with_stop_request(evidence: str, asked: StopRequest, left: int) -> None:
    status, reason = ASKED[evidence, asked, left]
    found = outcome(EVIDENCE[evidence], asked, platform_retries=left, user_retries=left)
    assert found == Outcome(status=TrialStatus(status), reason=Reason(reason))


def test_every_evidence_stands_in_the_table() -> None:
    assert {evidence for evidence, _ in UNASKED} == set(EVIDENCE)


@pytest.mark.parametrize(
    ("evidence", "platform_left", "user_left", "status"),
    [
        ("lost", 0, 5, "SYS_CANCELED"),
        ("lost", 1, 0, "WAITING"),
        ("exit 1", 5, 0, "FAILED"),
        ("exit 1", 0, 1, "WAITING"),
        ("too long", 5, 0, "FAILED"),
        ("too long", 0, 1, "WAITING"),
        ("unstarted", 0, 5, "FAILED"),
        ("unstarted", 1, 0, "WAITING"),
        ("lost", -1, 0, "SYS_CANCELED"),
        ("exit 1", 0, -1, "FAILED"),
    ],
)
def test_accounts_are_separate(evidence: str, platform_left: int, user_left: int, status: str) -> None:
    found = outcome(EVIDENCE[evidence], None, platform_retries=platform_left, user_retries=user_left)
    assert found.status == status


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("evidence", EVIDENCE)
def test_trial_with_final_result_is_not_run_again(evidence: str, left: int) -> None:
    found = outcome(EVIDENCE[evidence], None, platform_retries=left, user_retries=left, has_final=True)
    if evidence in ("preempted", "uncounted", "lost", "too long"):
        assert (found.status, found.reason) == (TrialStatus.SUCCEEDED, Reason.NONE)
        how = "a time limit ended it" if evidence == "too long" else "its end was not observed"
        assert f"{how} ({explain(EVIDENCE[evidence])})" in found.message
    else:
        status, reason = UNASKED[evidence, left]
        assert found == Outcome(status=TrialStatus(status), reason=Reason(reason))


@pytest.mark.parametrize("asked", StopRequest)
@pytest.mark.parametrize("evidence", ["preempted", "uncounted", "lost", "too long"])
def test_stop_request_keeps_meaning_with_final_result(evidence: str, asked: StopRequest) -> None:
    found = outcome(EVIDENCE[evidence], asked, platform_retries=1, user_retries=1, has_final=True)
    assert found == outcome(EVIDENCE[evidence], asked, platform_retries=1, user_retries=1)


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (Observation(state=JobState.FAILED, exit_code=2), "USER_CODE"),
        (Observation(state=JobState.FAILED, signal=9), "USER_CODE"),
        (Observation(state=JobState.FAILED, stderr_tail="MemoryError: cannot allocate"), "OUT_OF_MEMORY"),
        (Observation(state=JobState.FAILED, stderr_tail="what():  std::bad_alloc"), "OUT_OF_MEMORY"),
        (Observation(state=JobState.FAILED, stderr_tail="torch.OutOfMemoryError: CUDA out of…"), "GPU_OUT_OF_MEMORY"),
        (Observation(state=JobState.FAILED, stderr_tail="CUDA_ERROR_OUT_OF_MEMORY: out"), "GPU_OUT_OF_MEMORY"),
        (Observation(state=JobState.FAILED, stderr_tail=OTHER_PYTHON), "OTHER_PYTHON"),
        (Observation(state=JobState.FAILED, cause=Reason.OUT_OF_MEMORY), "OUT_OF_MEMORY"),
        (Observation(state=JobState.FAILED, native_reason="OOMKilled"), "USER_CODE"),
        (replace(GPU_MEMORY, cause=Reason.OUT_OF_MEMORY), "GPU_OUT_OF_MEMORY"),
        (
            Observation(state=JobState.FAILED, cause=Reason.SUBMIT_REJECTED, stderr_tail="MemoryError"),
            "SUBMIT_REJECTED",
        ),
        (replace(TOO_LONG, stderr_tail="MemoryError"), "TIMEOUT"),
    ],
)
def test_failures_are_sorted(report: Observation, reason: str) -> None:
    assert failure_reason(report) == reason


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (Observation(state=JobState.FAILED, exit_code=3), "exit code 3"),
        (Observation(state=JobState.FAILED, exit_code=3, message="disk quota exceeded"), "disk quota exceeded"),
        (Observation(state=JobState.FAILED, signal=15), "killed by signal 15 (SIGTERM)"),
        (
            Observation(state=JobState.FAILED, signal=9),
            "killed by signal 9 (SIGKILL); the manager did not send it, perhaps the system ran out of memory",
        ),
        (Observation(state=JobState.FAILED, signal=250), "killed by signal 250 (unknown)"),
        (Observation(state=JobState.PREEMPTED, native_reason="Evicted"), "Evicted"),
        (Observation(state=JobState.FAILED, cause=Reason.SUBMIT_REJECTED), "the training service refused its job"),
        (Observation(state=JobState.LOST), "its job was lost"),
        (TOO_LONG, "the limit of 1 h is over; raise timeLimit"),
        (Observation(state=JobState.FAILED, cause=Reason.TIMEOUT), "a time limit of the training service ended it"),
        (Observation(state=JobState.PREEMPTED), "the training service preempted it"),
        (Observation(state=JobState.FAILED), "its command failed"),
        (Observation(state=JobState.SUCCEEDED, exit_code=0), "exit code 0"),
    ],
)
def test_endings_are_explained(report: Observation, sentence: str) -> None:
    assert explain(report) == sentence


def test_end_without_details_is_explained_once() -> None:
    for reason, state in ((Reason.LOST, JobState.LOST), (Reason.PREEMPTED, JobState.PREEMPTED)):
        sentence = explain(Observation(state=state))
        assert reason_in_words(reason, sentence) == f"{sentence} ({reason})"


def test_requested_kill_has_no_suspicion() -> None:
    killed = Observation(state=JobState.FAILED, signal=9)
    assert explain(killed, StopRequest.USER) == "killed by signal 9 (SIGKILL)"


def test_final_statuses_are_those_that_are_not_open() -> None:
    final = {status for status in TrialStatus if status.is_final}
    assert final == {"SUCCEEDED", "FAILED", "USER_CANCELED", "SYS_CANCELED", "EARLY_STOPPED"}
    assert final.isdisjoint(OPEN_STATUSES)
