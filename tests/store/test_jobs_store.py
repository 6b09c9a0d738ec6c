"""Attempts as rows: intent, handle, evidence, fence."""

from __future__ import annotations

import dataclasses
import sqlite3

import pytest

from nni_manager.domain.attempt import INTENT, PLATFORM, USER_CODE, Attempt, Observation
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import WaitCode
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store.experiment import jobs, metrics, reports, runners, trials
from nni_manager.store.experiment.metrics import OutboxPart
from tests.store.life import add, attempt, one

pytestmark = pytest.mark.unit

NAME = "nni_exp_exp1_trial_aaaaa"
HANDLE = JobHandle(platform="local", version=3, job_name=NAME, data='{"deep": "ä"}')
DONE = Observation(
    state=JobState.FAILED, exit_code=2, message="exit code 2", stderr_tail="no", started_ms=5, ended_ms=6
)


@pytest.fixture(autouse=True)
def intent(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    jobs.intend(connection, Attempt("aaaaa", 1, NAME, service="local", intended_ms=4))


def test_an_intent_has_neither_handle_nor_evidence(connection: sqlite3.Connection) -> None:
    job = attempt(connection)
    assert (job.job_name, job.state, job.handle, job.started_ms) == (NAME, INTENT, None, None)
    assert jobs.undecided(connection, "local") == [] == jobs.unforgotten(connection, "local")


def test_a_handle_comes_back_as_it_was(connection: sqlite3.Connection) -> None:
    jobs.set_handle(connection, HANDLE)
    assert attempt(connection).state == "PENDING"
    assert jobs.undecided(connection, "local") == [HANDLE]
    assert attempt(connection).job_handle == HANDLE
    assert jobs.followed(connection, "local") == {NAME: {}}


def test_job_with_runner_exit_is_not_withdrawn(connection: sqlite3.Connection) -> None:
    runners.set_exit(connection, NAME, '{"exitCode": 0}', 50)
    jobs.withdraw(connection, NAME)
    assert attempt(connection).runner_exit is not None


def test_named_job_without_handle_is_followed(connection: sqlite3.Connection) -> None:
    assert jobs.followed(connection, "local") == {}
    assert jobs.followed(connection, "local", [NAME]) == {NAME: {}}


@pytest.mark.parametrize(("before", "beginning"), [("", ""), ("exit code 1", "exit code 1; ")])
def test_late_end_for_memory_is_added_to_the_message(
    connection: sqlite3.Connection, before: str, beginning: str
) -> None:
    killed = Observation(state=JobState.FAILED, cause=Reason.OUT_OF_MEMORY, message="too much")
    finish_closed(connection, before)
    assert reports.set_report(connection, NAME, killed, 60)
    assert not reports.set_report(connection, NAME, killed, 70)
    assert one(connection, "SELECT message FROM trials") == f"{beginning}a process of its job was killed: too much"


def test_other_late_end_leaves_the_message(connection: sqlite3.Connection) -> None:
    finish_closed(connection, "")
    reports.set_report(connection, NAME, DONE, 60)
    assert one(connection, "SELECT message FROM trials") == ""


def finish_closed(connection: sqlite3.Connection, message: str) -> None:
    """Ends the trial on its runner's exit report alone."""
    jobs.set_handle(connection, HANDLE)
    runners.set_exit(connection, NAME, '{"exitCode": 0}', 50)
    jobs.close(connection, "aaaaa", 1)
    trials.finish(connection, "aaaaa", status=TrialStatus.SUCCEEDED, reason=Reason.NONE, message=message, ended_ms=50)


def test_a_late_handle_does_not_turn_back_the_state(connection: sqlite3.Connection) -> None:
    reports.set_report(connection, NAME, Observation(state=JobState.RUNNING, started_ms=5), 50)
    jobs.set_handle(connection, HANDLE)
    assert (attempt(connection).state, attempt(connection).handle is not None) == ("RUNNING", True)


def test_final_evidence_is_never_overwritten(connection: sqlite3.Connection) -> None:
    reports.set_report(connection, NAME, DONE, 50)
    for state in JobState:
        reports.set_report(connection, NAME, Observation(state=state, exit_code=99, message="later"), 50)
    job = attempt(connection)
    assert (job.state, job.exit_code, job.message, job.stderr_tail) == ("FAILED", 2, "exit code 2", "no")


@pytest.mark.parametrize("cause", [None, Reason.OUT_OF_MEMORY])
def test_native_reason_and_cause_are_separate(connection: sqlite3.Connection, cause: Reason | None) -> None:
    told = dataclasses.replace(DONE, native_reason="RUNNER_FAILED", cause=cause)
    reports.set_report(connection, NAME, told, 50)
    job = attempt(connection)
    assert (job.native_reason, job.cause) == ("RUNNER_FAILED", cause or "")


def test_unknown_state_changes_nothing(connection: sqlite3.Connection) -> None:
    reports.set_report(connection, NAME, Observation(state=JobState.UNKNOWN, message="?"), 50)
    assert attempt(connection).state == INTENT


def test_start_time_is_kept(connection: sqlite3.Connection) -> None:
    reports.set_report(connection, NAME, Observation(state=JobState.RUNNING, started_ms=5), 50)
    reports.set_report(connection, NAME, Observation(state=JobState.SUCCEEDED, exit_code=0, ended_ms=9), 50)
    assert (attempt(connection).started_ms, attempt(connection).ended_ms) == (5, 9)


def test_start_time_is_never_before_the_intent(connection: sqlite3.Connection) -> None:
    reports.set_report(
        connection, NAME, Observation(state=JobState.SUCCEEDED, exit_code=0, started_ms=1, ended_ms=2), 50
    )
    assert (attempt(connection).started_ms, attempt(connection).ended_ms) == (4, 4)


def test_closed_attempt_rejects_reports_and_can_be_forgotten(connection: sqlite3.Connection) -> None:
    jobs.set_handle(connection, HANDLE)
    jobs.close(connection, "aaaaa", 1, PLATFORM)
    reports.set_report(connection, NAME, DONE, 50)
    jobs.set_handle(connection, HANDLE)
    assert one(connection, "SELECT state FROM attempts") == "PENDING"
    assert jobs.undecided(connection, "local") == []
    assert jobs.unforgotten(connection, "local") == [HANDLE]
    jobs.set_forgotten(connection, NAME)
    assert jobs.unforgotten(connection, "local") == []


def test_attempt_without_handle_is_not_forgotten(connection: sqlite3.Connection) -> None:
    jobs.close(connection, "aaaaa", 1)
    assert jobs.unforgotten(connection, "local") == []
    assert one(connection, "SELECT forgotten FROM attempts") == 1


def test_intent_can_be_withdrawn(connection: sqlite3.Connection) -> None:
    jobs.withdraw(connection, NAME)
    (trial,) = trials.load_open(connection)
    assert (trial.job, trial.attempt) == (None, 1)
    jobs.intend(connection, Attempt("aaaaa", 1, NAME, service="local", intended_ms=9))


@pytest.mark.parametrize("what", ["handle", "report", "close"])
def test_accepted_job_is_not_withdrawn(connection: sqlite3.Connection, what: str) -> None:
    if what == "handle":
        jobs.set_handle(connection, HANDLE)
    elif what == "report":
        reports.set_report(connection, NAME, DONE, 50)
    else:
        jobs.close(connection, "aaaaa", 1)
    jobs.withdraw(connection, NAME)
    assert one(connection, "SELECT count(*) FROM attempts") == 1


@pytest.mark.parametrize("lines", [0, 2])
def test_a_job_that_has_reported_has_run(connection: sqlite3.Connection, lines: int) -> None:
    """Started again under its name, its results would be taken for stored ones and dropped."""
    jobs.set_handle(connection, HANDLE)
    if lines:
        part = OutboxPart(job_name=NAME, outbox="outbox/main.jsonl", start=0, end=30, lines=lines, metrics=())
        metrics.store(connection, part, 9)
    assert jobs.return_to_intent(connection, NAME) is (lines == 0)
    jobs.withdraw(connection, NAME, was_accepted=True)
    assert one(connection, "SELECT count(*) FROM attempts") == (1 if lines else 0)


def test_retries_are_counted_on_two_accounts(connection: sqlite3.Connection) -> None:
    for number, account in enumerate((PLATFORM, USER_CODE, PLATFORM), start=1):
        if number > 1:
            jobs.intend(connection, Attempt("aaaaa", number, f"{NAME}-{number}", service="local", intended_ms=0))
        jobs.close(connection, "aaaaa", number, account)
        trials.next_attempt(connection, "aaaaa", WaitCode.RETRY, "again")
    assert jobs.retries(connection, "aaaaa") == (2, 1)
    assert jobs.retries(connection, "zzzzz") == (0, 0)


def test_a_job_name_is_used_once(connection: sqlite3.Connection) -> None:
    add(connection, "bbbbb")
    with pytest.raises(sqlite3.IntegrityError):
        jobs.intend(connection, Attempt("bbbbb", 1, NAME, service="local", intended_ms=0))


def test_link_of_the_handle_is_kept_for_an_ended_job(connection: sqlite3.Connection) -> None:
    handle = dataclasses.replace(HANDLE, link="https://portal/1")
    jobs.close(connection, "aaaaa", 1)
    jobs.set_handle(connection, handle)
    assert connection.execute("SELECT link FROM attempts").fetchall() == [("https://portal/1",)]
    assert handle == HANDLE, "a page is not part of its identity"
