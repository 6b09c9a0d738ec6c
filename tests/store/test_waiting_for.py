"""What an experiment waits for, by its services, jobs and trials."""

from __future__ import annotations

import sqlite3

import pytest

from nni_manager.domain.service import ServiceStatus, WaitCode
from nni_manager.store.index import waiting_for
from nni_manager.store.index.service_summary import ServiceSummary
from nni_manager.store.index.waiting_for import WaitingFor

pytestmark = pytest.mark.unit


def service(status: ServiceStatus | None, sentence: str = "", since_ms: int | None = 5) -> ServiceSummary:
    return ServiceSummary(
        name="remote",
        platform="remote",
        status=status,
        since_ms=since_ms,
        sentence=sentence,
        room=None,
        limit=None,
        open_attempts=0,
    )


def put_trial(connection: sqlite3.Connection, id: str, number: int, status: str, code: str = "", why: str = "") -> None:
    connection.execute(
        "INSERT INTO trials (id, sequence_id, status, record, created_ms, wait_code, wait_sentence, wait_ms)"
        " VALUES (?, ?, ?, '{}', 0, ?, ?, 7)",
        (id, number, status, code, why),
    )


UP = (service(ServiceStatus.UP),)


@pytest.mark.parametrize("status", [ServiceStatus.AWAY, ServiceStatus.ON_HOLD])
def test_troubled_service_is_waited_for(connection: sqlite3.Connection, status: ServiceStatus) -> None:
    found = waiting_for.load(connection, (*UP, service(status, "no route to host")))
    assert found == WaitingFor(sentence=f"remote is {status}: no route to host", since_ms=5)


def test_unreachable_jobs_are_waited_for(connection: sqlite3.Connection) -> None:
    put_trial(connection, "aaaaa", 0, "RUNNING")
    for number, since_ms in ((1, 30), (2, 20)):
        connection.execute(
            "INSERT INTO attempts (trial_id, number, job_name, state, intended_ms, unreachable_ms, unreachable)"
            " VALUES ('aaaaa', ?, ?, 'RUNNING', 0, ?, 'gpu-2 does not answer')",
            (number, f"job{number}", since_ms),
        )
    assert waiting_for.load(connection, UP) == WaitingFor(
        sentence="2 jobs are unreachable: gpu-2 does not answer", since_ms=20
    )


def test_first_waiting_trial_is_named_while_none_runs(connection: sqlite3.Connection) -> None:
    put_trial(connection, "aaaaa", 0, "WAITING", "GPU", "gpu 0 is busy")
    put_trial(connection, "bbbbb", 1, "WAITING", "IMAGE", "the image is pulled")
    assert waiting_for.load(connection, UP) == WaitingFor(sentence="gpu 0 is busy", since_ms=7)
    put_trial(connection, "ccccc", 2, "RUNNING")
    assert waiting_for.load(connection, UP) is None


@pytest.mark.parametrize("code", [WaitCode.QUEUED, WaitCode.HELD])
def test_trial_in_a_batch_queue_is_waited_for(connection: sqlite3.Connection, code: WaitCode) -> None:
    put_trial(connection, "aaaaa", 0, "WAITING", code, "7 jobs before it")
    assert waiting_for.load(connection, UP) == WaitingFor(sentence="7 jobs before it", since_ms=7)


@pytest.mark.parametrize("code", ["", "CONCURRENCY", "SUBMITTED", "RETRY", "HOLD"])
def test_ordinary_reasons_are_not_waits(connection: sqlite3.Connection, code: str) -> None:
    put_trial(connection, "aaaaa", 0, "WAITING", code, "in a moment")
    assert waiting_for.load(connection, UP) is None


def test_closed_experiment_waits_for_nothing(connection: sqlite3.Connection) -> None:
    put_trial(connection, "aaaaa", 0, "WAITING", "GPU", "gpu 0 is busy")
    assert waiting_for.load(connection, (service(None),)) is None
