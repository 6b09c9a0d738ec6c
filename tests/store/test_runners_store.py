"""Rows about runners: their attempt, its container, its exit report, and missing results."""

from __future__ import annotations

import json
import sqlite3

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import AttemptDecided, NotFound
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.job import JobState
from nni_manager.domain.metrics import Metric, MetricType
from nni_manager.domain.service import WaitCode
from nni_manager.domain.trial import StopRequest
from nni_manager.store.experiment import answers, experiments, jobs, metrics, reports, runners, trials
from tests.store.life import add, attempt, end, final, intermediate, one, report, start

pytestmark = pytest.mark.unit

WORD = '{"exitCode": 0, "outboxes": {"outbox/main.jsonl": 20}}'


@pytest.fixture
def job(connection: sqlite3.Connection) -> str:
    add(connection, "aaaaa", 7, {"x": 0.5}, at=1)
    return start(connection, "aaaaa", at=2)


def test_runner_reads_its_attempt(connection: sqlite3.Connection, job: str) -> None:
    side = runners.find(connection, "aaaaa", 1)
    assert (side.job_name, side.must_stop, side.runner_version, side.intended_ms) == (job, False, "", 2)
    assert json.loads(side.record)["parameters"] == {"x": 0.5}


def test_attempts_that_there_are_not(connection: sqlite3.Connection, job: str) -> None:
    for trial_id, number in (("aaaaa", 2), ("bbbbb", 1), ("aaaaa", 0)):
        with pytest.raises(NotFound, match=f"cannot find attempt {number} of trial {trial_id}"):
            runners.find(connection, trial_id, number)


def test_an_attempt_that_is_decided_is_fenced_off(connection: sqlite3.Connection, job: str) -> None:
    assert not runners.find(connection, "aaaaa", 1).is_decided
    end(connection, "aaaaa", at=5)
    assert runners.find(connection, "aaaaa", 1).is_decided
    runners.register(connection, job, version="0.6.0", channel="push")
    runners.set_exit(connection, job, WORD, 9)
    assert one(connection, "SELECT runner_version, channel, runner_exit FROM attempts") == ("", "", None)


def test_only_the_last_attempt_is_open(connection: sqlite3.Connection, job: str) -> None:
    jobs.close(connection, "aaaaa", 1, jobs.PLATFORM)
    trials.next_attempt(connection, "aaaaa", WaitCode.RETRY, "again")
    second = start(connection, "aaaaa", 2, at=8)
    assert runners.find(connection, "aaaaa", 1).is_decided
    assert (found := runners.find(connection, "aaaaa", 2)).job_name == second and not found.is_decided


def test_orders(connection: sqlite3.Connection, job: str) -> None:
    trials.request_stop(connection, "aaaaa", StopRequest.ASSESSOR)
    assert runners.find(connection, "aaaaa", 1).must_stop


def test_end_of_experiment_stops_runner(connection: sqlite3.Connection, job: str) -> None:
    experiments.set_status(connection, ExperimentStatus.STOPPING, 5)
    assert runners.find(connection, "aaaaa", 1).must_stop


def test_registration_is_shown(connection: sqlite3.Connection, job: str) -> None:
    runners.register(connection, job, version="0.6.2", channel="push")
    assert runners.find(connection, "aaaaa", 1).runner_version == "0.6.2"
    assert attempt(connection).channel == "push"


def test_first_runner_exit_counts(connection: sqlite3.Connection, job: str) -> None:
    runners.set_exit(connection, job, WORD, 9)
    runners.set_exit(connection, job, '{"exitCode": 3}', 10)
    assert (attempt(connection).runner_exit, attempt(connection).runner_exit_ms) == (WORD, 9)


def test_api_shows_platform_and_runner_reports(connection: sqlite3.Connection, job: str) -> None:
    runners.register(connection, job, version="0.6.0", channel="pull")
    runners.set_exit(connection, job, WORD, 9)
    (shown,) = json.loads(answers.trial(connection, "aaaaa"))["attempts"]
    assert (shown["channel"], shown["runnerVersion"], shown["runnerExit"]) == ("pull", "0.6.0", json.loads(WORD))
    assert (shown["state"], shown["exitCode"]) == ("RUNNING", None)


@pytest.mark.parametrize(
    ("outboxes", "is_drained"),
    [
        ({}, True),
        ({"outbox/main.jsonl": 20}, True),
        ({"outbox/main.jsonl": 19}, True),
        ({"outbox/main.jsonl": 21}, False),
        ({"outbox/main.jsonl": 20, "outbox/2.jsonl": 1}, False),
        ({"outbox/main.jsonl": 20, "outbox/2.jsonl": 0}, True),
    ],
)
def test_missing_outboxes(connection: sqlite3.Connection, job: str, outboxes: dict[str, int], is_drained: bool) -> None:
    report(connection, job, intermediate(1), final(2), at=5)
    assert (runners.missing(connection, job, outboxes) == {}) is is_drained


def test_results_after_runner_exit_complete_attempt(connection: sqlite3.Connection, job: str) -> None:
    assert not report(connection, job, intermediate(1)).may_complete
    runners.set_exit(connection, job, WORD, 9)
    late = report(connection, job, final(2), start=10)
    assert late.may_complete and late.stored is metrics.Stored.NEW


@pytest.mark.parametrize(("told", "stored"), [(0, 2), (5, 5), (2**53 - 1, 9), (None, None)])
def test_wrong_clocks_of_runners_are_tolerated(
    connection: sqlite3.Connection, job: str, told: int | None, stored: int | None
) -> None:
    runners.set_exit(connection, job, json.dumps({"exitCode": 0, "startedMs": told, "endedMs": told}), 9)
    word = json.loads(attempt(connection).runner_exit or "")
    assert (word["startedMs"], word["endedMs"]) == (stored, stored)


def test_unconfirmed_jobs(connection: sqlite3.Connection) -> None:
    names = {}
    for number, id_ in enumerate(("aaaaa", "bbbbb", "ccccc", "ddddd")):
        add(connection, id_, number)
        names[id_] = start(connection, id_)
    for id_ in ("aaaaa", "bbbbb", "ccccc"):
        runners.set_exit(connection, names[id_], WORD, 9)
    reports.set_report(connection, names["bbbbb"], Observation(state=JobState.SUCCEEDED), 9)
    for id_ in ("aaaaa", "bbbbb", "ddddd"):
        jobs.close(connection, id_, 1)
    assert jobs.unconfirmed(connection) == {names["aaaaa"]: WORD}
    jobs.set_forgotten(connection, names["aaaaa"])
    assert jobs.unconfirmed(connection) == {}


def test_late_platform_report_completes_the_attempt(connection: sqlite3.Connection, job: str) -> None:
    runners.set_exit(connection, job, WORD, 5)
    jobs.close(connection, "aaaaa", 1)
    reports.set_report(connection, job, Observation(state=JobState.RUNNING, started_ms=1), 6)
    assert one(connection, "SELECT state, started_ms FROM attempts") == ("RUNNING", 2)
    reports.set_report(connection, job, Observation(state=JobState.FAILED, exit_code=1), 7)
    reports.set_report(connection, job, Observation(state=JobState.LOST), 8)
    assert one(connection, "SELECT state, exit_code, final_seen_ms FROM attempts") == ("FAILED", 1, 7)


def test_forgotten_job_ignores_reports(connection: sqlite3.Connection, job: str) -> None:
    runners.set_exit(connection, job, WORD, 5)
    jobs.close(connection, "aaaaa", 1)
    jobs.set_forgotten(connection, job)
    reports.set_report(connection, job, Observation(state=JobState.LOST), 8)
    assert one(connection, "SELECT state FROM attempts") == "RUNNING"


# ------------------------------------------------------------------------------------------------ containers

A, B, C = "a" * 16, "b" * 16, "c" * 16
MAIN = "outbox/main.jsonl"


def register(connection: sqlite3.Connection, job: str, container: str, **outboxes: int) -> None:
    found = {f"outbox/{name}.jsonl": size for name, size in outboxes.items()}
    runners.register(connection, job, version="0.6.0", channel="push", container=container, outboxes=found)


def send(
    connection: sqlite3.Connection, job: str, container: str, start: int, *values: float, outbox: str = MAIN
) -> metrics.Receipt:
    """Lines of ten bytes each."""
    found = tuple(
        Metric(type=MetricType.PERIODICAL, data=str(value), value=value, number=number)
        for number, value in enumerate(values)
    )
    end = start + 10 * len(values)
    chunk = metrics.OutboxPart(
        job_name=job, outbox=outbox, start=start, end=end, lines=len(values), metrics=found, container=container
    )
    return metrics.store(connection, chunk, 7)


def shown(connection: sqlite3.Connection) -> list[tuple[float, int, int, int]]:
    return connection.execute("SELECT value, sequence, number, epoch FROM metrics ORDER BY id").fetchall()


def test_newest_registered_container_counts(connection: sqlite3.Connection, job: str) -> None:
    register(connection, job, A)
    assert send(connection, job, A, 0, 1).stored is metrics.Stored.NEW
    runners.set_exit(connection, job, json.dumps({"exitCode": 1, "container": A}), 8)
    register(connection, job, B, main=10)
    assert attempt(connection).runner_exit is None, "what a container said of its end is void when another comes"
    assert send(connection, job, A, 10, 2).stored is metrics.Stored.FENCED
    runners.set_exit(connection, job, json.dumps({"exitCode": 1, "container": A}), 9)
    assert attempt(connection).runner_exit is None
    with pytest.raises(AttemptDecided, match="a newer container"):
        register(connection, job, A)
    assert runners.find(connection, "aaaaa", 1).container == B
    runners.set_exit(connection, job, json.dumps({"exitCode": 0, "container": B}), 9)
    assert attempt(connection).runner_exit_ms == 9


def test_new_container_with_same_files_continues(connection: sqlite3.Connection, job: str) -> None:
    register(connection, job, A)
    send(connection, job, A, 0, 1, 2)
    register(connection, job, B, main=30)
    assert jobs.offsets(connection, job) == {MAIN: 20}
    assert send(connection, job, B, 20, 3).stored is metrics.Stored.NEW
    assert shown(connection) == [(1, 0, 0, 0), (2, 1, 1, 0), (3, 2, 2, 1)], "marked as the second one's"


def test_new_container_on_fresh_files_starts_a_new_epoch(connection: sqlite3.Connection, job: str) -> None:
    register(connection, job, A)
    send(connection, job, A, 0, 1, 2)
    register(connection, job, B)
    register(connection, job, B)  # the answer was lost
    assert jobs.offsets(connection, job) == {MAIN: 0}
    assert send(connection, job, B, 0, 5).stored is metrics.Stored.NEW
    assert send(connection, job, B, 0, 5).stored is metrics.Stored.REPEAT
    assert send(connection, job, B, 20, 7).stored is metrics.Stored.GAP
    assert shown(connection) == [(1, 0, 0, 0), (2, 1, 1, 0), (5, 2, 2, 1)]
    assert runners.missing(connection, job, {MAIN: 20}) == {MAIN: (10, 20)}
    register(connection, job, C)
    assert send(connection, job, C, 0, 6).stored is metrics.Stored.NEW
    (found,) = json.loads(answers.trial(connection, "aaaaa"))["attempts"]
    assert (found["containers"], found["epoch"]) == (3, 2)
    told = json.loads(answers.metrics(connection, trial_id="aaaaa", type=None, after=0, limit=9))["metrics"]
    assert [metric["epoch"] for metric in told] == [0, 0, 1, 2]


def test_runners_without_identity_are_accepted(connection: sqlite3.Connection, job: str) -> None:
    runners.register(connection, job, version="0.6.0", channel="push")
    assert send(connection, job, "", 0, 1).stored is metrics.Stored.NEW
    runners.register(connection, job, version="0.6.0", channel="push")
    assert send(connection, job, "", 10, 2).stored is metrics.Stored.NEW
    runners.set_exit(connection, job, WORD, 9)
    assert attempt(connection).runner_exit == WORD


def test_drop_reason_is_stored_once(connection: sqlite3.Connection, job: str) -> None:
    for begin, doubt in ((0, "too long"), (10, "another"), (20, "too long")):
        chunk = metrics.OutboxPart(
            job_name=job, outbox=MAIN, start=begin, end=begin + 10, lines=1, metrics=(), doubt=doubt
        )
        metrics.store(connection, chunk, 7)
    assert attempt(connection).doubt == "too long; another"


def test_replaced_outbox_continues_in_the_next_container(connection: sqlite3.Connection, job: str) -> None:
    """What a container finds is the file that took the place."""
    register(connection, job, A)
    send(connection, job, A, 0, 1, 2, 3)
    assert send(connection, job, A, 0, 1, 4, outbox=f"{MAIN}/2").doubt
    stored = {MAIN: 30, f"{MAIN}/2": 20}
    register(connection, job, B, main=20)
    assert jobs.offsets(connection, job) == stored, "it is there whole"
    register(connection, job, C)
    assert jobs.offsets(connection, job) == dict.fromkeys(stored, 0)
    assert not send(connection, job, C, 0, 1, 4, outbox=f"{MAIN}/2").doubt
    send(connection, job, C, 0, 1, 5, outbox=f"{MAIN}/3")
    assert [value for value, *_ in shown(connection)] == [1, 2, 3, 4, 1, 4, 5]
