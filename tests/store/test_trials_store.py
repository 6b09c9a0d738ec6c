"""Trials as rows: made, asked to stop, ended, tried again, opened again; and the experiment's own row."""

from __future__ import annotations

import json
import sqlite3

import pytest

from nni_manager.domain.experiment import ExperimentStatus, Hold, HoldCode
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import WaitCode
from nni_manager.domain.space.parameters import Parameters
from nni_manager.domain.trial import StopRequest
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store.experiment import experiments, history, jobs, trials
from tests.store.life import add, end, final, intermediate, one, report, start

pytestmark = pytest.mark.unit


def test_trials_are_numbered_and_open_oldest_first(connection: sqlite3.Connection) -> None:
    assert [add(connection, id_, number) for number, id_ in enumerate(("ccccc", "aaaaa", "bbbbb"))] == [0, 1, 2]
    assert [(trial.id, trial.sequence_id) for trial in trials.load_open(connection)] == [
        ("ccccc", 0),
        ("aaaaa", 1),
        ("bbbbb", 2),
    ]
    row = experiments.load(connection)
    assert (row.next_sequence_id, row.next_parameter_id) == (3, 3)


def test_parameter_numbers_can_have_gaps(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa", 7)
    add(connection, "bbbbb", 3)
    add(connection, "ccccc", None)
    assert experiments.load(connection).next_parameter_id == 8


def test_new_ids_are_unique(connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    add(connection, "aaaaa")
    monkeypatch.setattr(trials, "new_trial_ids", lambda: iter(["aaaaa", "bbbbb", "bbbbb", "aaaaa", "ccccc"]))
    assert trials.fresh_ids(connection, 2) == ("bbbbb", "ccccc")
    assert trials.fresh_ids(connection, 0) == ()


def test_the_first_wish_to_stop_counts(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    assert trials.request_stop(connection, "aaaaa", StopRequest.ASSESSOR)
    assert trials.request_stop(connection, "aaaaa", StopRequest.USER)
    (trial,) = trials.load_open(connection)
    assert trial.asked is StopRequest.ASSESSOR


def test_ended_and_unknown_trials_cannot_be_asked_to_stop(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    end(connection, "aaaaa")
    assert not trials.request_stop(connection, "aaaaa", StopRequest.USER)
    assert not trials.request_stop(connection, "zzzzz", StopRequest.USER)
    assert one(connection, "SELECT asked FROM trials") == ""


def test_ends_are_counted_in_their_order(connection: sqlite3.Connection) -> None:
    for id_ in ("aaaaa", "bbbbb", "ccccc"):
        add(connection, id_)
    end(connection, "ccccc", "FAILED", "USER_CODE", "exit code 1")
    end(connection, "aaaaa", at=9)
    first, second = trials.first_ended(connection, 5)
    assert first[1:] == ("FAILED", "USER_CODE", "exit code 1", "")
    assert second[1:] == ("SUCCEEDED", "", "", "")
    assert trials.first_ended(connection, 1) == [first]
    assert experiments.load(connection).ended_trials == 2
    assert [trial.id for trial in trials.load_open(connection)] == ["bbbbb"]
    assert one(connection, "SELECT ended_ms, wait_code FROM trials WHERE id = 'aaaaa'") == (9, "")


def test_failures_count_from_the_last_resume_on(connection: sqlite3.Connection) -> None:
    for number in range(5):
        add(connection, f"tria{number}")
    for number, failure in enumerate(("A", "", "B", "B")):
        trials.finish(
            connection,
            f"tria{number}",
            status=TrialStatus.FAILED if failure else TrialStatus.SUCCEEDED,
            reason=Reason.NONE,
            message="",
            ended_ms=1,
            failure_key=failure,
        )
    after = experiments.load(connection).resumed_end
    assert trials.last_keys(connection, after, 3) == ("", "B", "B")
    assert trials.failed_since(connection, after) == 3
    experiments.forget_failures(connection)
    after = experiments.load(connection).resumed_end
    assert (trials.last_keys(connection, after, 3), trials.failed_since(connection, after)) == ((), 0)


def test_unknown_message_is_cleared(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    start(connection, "aaaaa", at=5)
    trials.set_unknown(connection, "aaaaa", "the platform cannot be asked")
    assert one(connection, "SELECT status, message FROM trials") == ("UNKNOWN", "the platform cannot be asked")
    trials.set_running(connection, "aaaaa", 5)
    assert one(connection, "SELECT status, message FROM trials") == ("RUNNING", "")
    trials.set_unknown(connection, "aaaaa", "the platform cannot be asked")
    trials.next_attempt(connection, "aaaaa", WaitCode.RETRY, "again")
    assert one(connection, "SELECT status, message, started_ms, attempt FROM trials") == ("WAITING", "", None, 2)


# ------------------------------------------------------------------------------------------------ resume


def stop(connection: sqlite3.Connection, id: str) -> None:
    end(connection, id, "USER_CANCELED", "EXPERIMENT_STOPPED", "killed")


def test_stopped_trials_wait_again_on_resume(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa", 0, {"x": 1})
    report(connection, start(connection, "aaaaa", at=2), intermediate(1), final(2))
    trials.request_stop(connection, "aaaaa", StopRequest.EXPERIMENT_STOPPED)
    stop(connection, "aaaaa")
    assert trials.reopen_stopped(connection) == 1
    (trial,) = trials.load_open(connection)
    assert (trial.status, trial.attempt, trial.asked, trial.job, trial.started_ms) == ("WAITING", 2, None, None, None)
    assert trial.wait_code == WaitCode.CONCURRENCY
    assert json.loads(trial.record) == {
        "parameter_id": 0,
        "parameter_source": "resumed",
        "parameters": {"x": 1},
        "parameter_index": 0,
    }
    assert one(connection, "SELECT reason, message, ended_ms, end_order, final_data, intermediates FROM trials") == (
        "",
        "",
        None,
        None,
        None,
        0,
    )
    assert jobs.retries(connection, "aaaaa") == (0, 0), "a stop costs no retry"


def test_trial_without_a_job_keeps_its_attempt_on_resume(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    stop(connection, "aaaaa")
    add(connection, "bbbbb")
    start(connection, "bbbbb")
    jobs.close(connection, "bbbbb", 1, jobs.PLATFORM)
    trials.next_attempt(connection, "bbbbb", WaitCode.RETRY, "again")
    stop(connection, "bbbbb")
    trials.reopen_stopped(connection)
    assert [(trial.id, trial.attempt) for trial in trials.load_open(connection)] == [("aaaaa", 1), ("bbbbb", 2)]
    start(connection, "aaaaa", 1)
    start(connection, "bbbbb", 2)


def test_repeated_stop_and_resume_works(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    for attempt in (1, 2, 3):
        start(connection, "aaaaa", attempt)
        end(connection, "aaaaa", "USER_CANCELED", "EXPERIMENT_STOPPED", attempt=attempt)
        assert trials.reopen_stopped(connection) == 1
    end(connection, "aaaaa", attempt=4)
    assert one(connection, "SELECT end_order FROM trials") == 4
    assert experiments.load(connection).ended_trials == 4


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("SUCCEEDED", ""),
        ("FAILED", "USER_CODE"),
        ("USER_CANCELED", "USER_REQUEST"),
        ("EARLY_STOPPED", "ASSESSOR"),
        ("SYS_CANCELED", "LOST"),
    ],
)
def test_trials_with_another_end_stay_ended_on_resume(connection: sqlite3.Connection, status: str, reason: str) -> None:
    add(connection, "aaaaa")
    end(connection, "aaaaa", status, reason)
    assert trials.reopen_stopped(connection) == 0
    assert one(connection, "SELECT status FROM trials") == status


def test_customized_parameters_stay_customized_on_resume(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa", None)
    stop(connection, "aaaaa")
    trials.reopen_stopped(connection)
    (trial,) = trials.load_open(connection)
    assert Parameters.from_record(trial.record).source == "customized"


# ------------------------------------------------------------------------------------------------ history


def test_history_is_in_end_order(connection: sqlite3.Connection) -> None:
    for number, id_ in enumerate(("aaaaa", "bbbbb", "ccccc")):
        add(connection, id_, number, {"x": number})
    report(connection, start(connection, "bbbbb"), intermediate(1), intermediate(2), final(0.5))
    end(connection, "bbbbb")
    end(connection, "aaaaa", "FAILED", "USER_CODE")
    first, second = history.ended(connection, after=0, intermediates=True)
    assert first == {
        "trial_id": "bbbbb",
        "parameter_id": 1,
        "parameters": {"x": 1},
        "source": "algorithm",
        "status": "SUCCEEDED",
        "value": 0.5,
        "end_order": 1,
        "intermediates": [1, 2],
    }
    assert (second["trial_id"], second["value"], second["intermediates"]) == ("aaaaa", None, [])
    assert [item["trial_id"] for item in history.ended(connection, after=1, intermediates=False)] == ["aaaaa"]
    assert [item["trial_id"] for item in history.ended(connection, after=0, until=1, intermediates=False)] == ["bbbbb"]
    assert history.ended(connection, after=0, intermediates=False)[0]["intermediates"] == []
    assert [item["trial_id"] for item in history.unfinished(connection, until=9)] == ["ccccc"]


def test_reopened_trials_are_unfinished(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    stop(connection, "aaaaa")
    trials.reopen_stopped(connection)
    assert history.ended(connection, after=0, intermediates=False) == []
    assert [item["source"] for item in history.unfinished(connection, until=9)] == ["resumed"]


def test_imports_come_back_one_by_one(connection: sqlite3.Connection) -> None:
    experiments.add_import(connection, '[{"parameter": {"x": 1}, "value": 2}]', 1)
    experiments.add_import(connection, "[]", 2)
    assert history.imported(connection) == [[{"parameter": {"x": 1}, "value": 2}], []]


# ------------------------------------------------------------------------------------------------ the experiment


def test_a_new_experiment(connection: sqlite3.Connection) -> None:
    row = experiments.load(connection)
    assert (row.id, row.status, row.hold, row.error, row.revision) == ("exp1", ExperimentStatus.RUNNING, None, "", 1)
    assert (row.created_ms, row.ended_ms, row.exec_ms, row.next_sequence_id) == (1000, None, 0, 0)
    assert experiments.load(connection).interpreter == "/usr/bin/python3"
    assert row.config not in repr(row)


def test_time_counts_while_it_is_active(connection: sqlite3.Connection) -> None:
    experiments.count_time(connection, 1500)
    experiments.set_status(connection, ExperimentStatus.DONE, 1600)
    experiments.set_status(connection, ExperimentStatus.RUNNING, 9000)
    experiments.count_time(connection, 9010)
    experiments.count_to_last_event(connection, 9900)  # no daemon ran
    experiments.count_time(connection, 9890)  # the clock was set back
    row = experiments.load(connection)
    assert (row.exec_ms, row.counted_ms) == (610, 9890)


def test_time_on_hold_does_not_count(connection: sqlite3.Connection) -> None:
    hold = Hold(code=HoldCode.SAME_FAILURE, sentence="put it right")
    created = experiments.load(connection).created_ms
    experiments.set_hold(connection, hold, created + 100)
    experiments.count_time(connection, created + 5000)
    experiments.count_to_last_event(connection, created + 6000)
    assert experiments.load(connection).exec_ms == 100
    experiments.set_hold(connection, None, created + 9000)
    experiments.count_time(connection, created + 9010)
    assert experiments.load(connection).exec_ms == 110


def test_time_after_a_kill_counts_up_to_the_last_event(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa", at=2000)
    end(connection, "aaaaa", at=5000)
    add(connection, "bbbbb", at=4000)
    experiments.count_to_last_event(connection, 90_000)
    row = experiments.load(connection)
    assert (row.exec_ms, row.counted_ms) == (4000, 90_000)
    experiments.count_to_last_event(connection, 95_000)
    assert experiments.load(connection).exec_ms == 4000, "nothing is counted twice"


def test_time_after_a_kill_counts_up_to_the_last_result(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa", at=2000)
    connection.execute("INSERT INTO outboxes (trial_id, attempt, name) VALUES ('aaaaa', 1, 'outbox/main.jsonl')")
    connection.execute(
        "INSERT INTO metrics (outbox, number, trial_id, attempt, type, sequence, stored_ms, data)"
        " VALUES (1, 0, 'aaaaa', 1, 'PERIODICAL', 0, 8000, '1')"
    )
    experiments.count_to_last_event(connection, 90_000)
    assert experiments.load(connection).exec_ms == 7000


def test_the_end_is_when_it_ended_first(connection: sqlite3.Connection) -> None:
    ends, made_ms = [], experiments.load(connection).created_ms
    for status, now in (
        ("DONE", 5),
        ("STOPPING", 6),
        ("STOPPED", 7),
        ("RUNNING", 8),
        ("STOPPING", 9),
        ("STOPPED", 10),
        ("ERROR", 11),
    ):
        experiments.set_status(connection, ExperimentStatus(status), made_ms + now)
        ended_ms = experiments.load(connection).ended_ms
        ends.append(ended_ms and ended_ms - made_ms)
    assert ends == [5, 5, 5, None, None, 10, 10]


@pytest.mark.parametrize("status", TrialStatus)
def test_only_open_trials_are_loaded(connection: sqlite3.Connection, status: TrialStatus) -> None:
    add(connection, "aaaaa")
    connection.execute("UPDATE trials SET status = ?", (status,))
    assert bool(trials.load_open(connection)) is not status.is_final
