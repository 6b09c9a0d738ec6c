"""NNI's three tables, as its own tools read them."""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter

import pytest

from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.service import WaitCode
from nni_manager.store.experiment import experiments, jobs, trials
from tests.store.life import add, end, intermediate, report, start

pytestmark = pytest.mark.unit

COLUMNS = {
    "TrialJobEvent": "timestamp trialJobId event data logPath sequenceId message environmentId",
    "MetricData": "timestamp trialJobId parameterId type sequence data",
    "ExperimentProfile": "params id execDuration startTime endTime logDir nextSequenceId revision",
}


@pytest.mark.parametrize("table", COLUMNS)
def test_columns(connection: sqlite3.Connection, table: str) -> None:
    found = connection.execute(f"SELECT * FROM {table}").description
    assert " ".join(column[0] for column in found) == COLUMNS[table]


@pytest.mark.parametrize("view", ["TrialJobEvent", "MetricData"])
def test_nni_that_resumes_is_refused_as_the_readme_says(connection: sqlite3.Connection, view: str) -> None:
    values = ", ".join("?" * len(COLUMNS[view].split()))
    with pytest.raises(
        sqlite3.IntegrityError, match=r"^NNI cannot resume an experiment of nni-manager, only view it: "
    ):
        connection.execute(f"INSERT INTO {view} VALUES ({values})", [None] * len(COLUMNS[view].split()))


def events(connection: sqlite3.Connection) -> list[sqlite3.Row]:
    connection.row_factory = sqlite3.Row
    return connection.execute("SELECT * FROM TrialJobEvent").fetchall()


def test_the_life_of_a_trial_in_events(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa", 7, {"x": 0.5}, at=10)
    start(connection, "aaaaa", at=20)
    end(connection, "aaaaa", "FAILED", "USER_CODE", "exit code 1", at=30)
    waiting, running, failed = events(connection)
    assert [(e["timestamp"], e["trialJobId"], e["event"], e["sequenceId"]) for e in (waiting, running, failed)] == [
        (10, "aaaaa", "WAITING", 0),
        (20, "aaaaa", "RUNNING", 0),
        (30, "aaaaa", "FAILED", 0),
    ]
    assert json.loads(waiting["data"]) == {
        "parameter_id": 7,
        "parameter_source": "algorithm",
        "parameters": {"x": 0.5},
        "parameter_index": 0,
    }
    assert running["logPath"].endswith("/exp1/trials/aaaaa") and failed["logPath"] == running["logPath"]
    assert (failed["message"], failed["environmentId"]) == ("exit code 1", None)


def test_replaying_the_events_gives_the_present_state(connection: sqlite3.Connection) -> None:
    """State is rebuilt by reading the rows in order; a later one wins."""
    for number, id_ in enumerate(("aaaaa", "bbbbb", "ccccc", "ddddd")):
        add(connection, id_, number, at=5)
    for id_ in ("aaaaa", "bbbbb", "ccccc"):
        start(connection, id_, at=5)
    end(connection, "aaaaa", at=5)
    end(connection, "bbbbb", "USER_CANCELED", "USER_REQUEST", at=5)
    state = {event["trialJobId"]: event["event"] for event in events(connection)}
    assert state == {"aaaaa": "SUCCEEDED", "bbbbb": "USER_CANCELED", "ccccc": "RUNNING", "ddddd": "WAITING"}


def test_a_later_attempt_names_its_own_folder(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    start(connection, "aaaaa", at=1)
    jobs.close(connection, "aaaaa", 1, jobs.PLATFORM)
    trials.next_attempt(connection, "aaaaa", WaitCode.RETRY, "again")
    assert [event["event"] for event in events(connection)] == ["WAITING"]
    start(connection, "aaaaa", 2, at=2)
    assert events(connection)[-1]["logPath"].endswith("/trials/aaaaa-2")


def test_customized_parameters(connection: sqlite3.Connection) -> None:
    experiments.add_import(connection, '[{"parameter": {}, "value": 1}]', 3)
    add(connection, "aaaaa", None, {"x": 1}, at=4)
    found = [(e["trialJobId"], e["event"], e["sequenceId"]) for e in events(connection)]
    assert found == [("", "IMPORT_DATA", None), ("", "ADD_CUSTOMIZED", 0), ("aaaaa", "WAITING", 0)]
    assert events(connection)[0]["data"] == '[{"parameter": {}, "value": 1}]'
    assert json.loads(events(connection)[1]["data"])["parameter_source"] == "customized"


def test_metrics_are_encoded_twice(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa", 7)
    value = {"default": 0.5, "ü": '"'}
    job = start(connection, "aaaaa")
    report(
        connection,
        job,
        intermediate(0.25),
        ("intermediate", "NaN", math.nan),
        ("final", json.dumps(value), value),
        at=9,
    )
    found = connection.execute("SELECT * FROM MetricData").fetchall()
    assert [row[:5] for row in found] == [
        (9, "aaaaa", "7", "PERIODICAL", 0),
        (9, "aaaaa", "7", "PERIODICAL", 1),
        (9, "aaaaa", "7", "FINAL", 0),
    ]
    assert found[0][5] == '"0.25"'
    assert math.isnan(json.loads(json.loads(found[1][5])))
    assert json.loads(json.loads(found[2][5])) == value


def test_only_the_present_attempts_metrics_are_shown(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    report(connection, start(connection, "aaaaa"), intermediate(1))
    jobs.close(connection, "aaaaa", 1, jobs.PLATFORM)
    trials.next_attempt(connection, "aaaaa", WaitCode.RETRY, "again")
    report(connection, start(connection, "aaaaa", 2), intermediate(2))
    assert [json.loads(row[5]) for row in connection.execute("SELECT * FROM MetricData")] == ["2"]


def test_every_save_is_a_revision(connection: sqlite3.Connection) -> None:
    experiments.count_time(connection, 4500)
    experiments.count_to_last_event(connection, 5000)
    experiments.set_config(connection, '{"trialConcurrency": 9}')
    add(connection, "aaaaa")
    experiments.set_status(connection, ExperimentStatus.DONE, 5000)
    connection.row_factory = sqlite3.Row
    rows = connection.execute("SELECT * FROM ExperimentProfile WHERE id = 'exp1' ORDER BY revision DESC").fetchall()
    newest, changed, first = rows
    assert [row["revision"] for row in rows] == [3, 2, 1]
    assert newest["params"] == changed["params"] == '{"trialConcurrency": 9}' != first["params"]
    assert (newest["execDuration"], newest["startTime"], newest["endTime"]) == (3, 1000, 5000)
    assert (newest["nextSequenceId"], changed["nextSequenceId"], first["endTime"]) == (1, 0, None)
    assert newest["logDir"].endswith("/exp1")


def test_sequence_ids_are_those_of_the_trials(connection: sqlite3.Connection) -> None:
    for number in range(3):
        add(connection, f"t{number:04}", number)
    assert Counter(event["sequenceId"] for event in events(connection)) == {0: 1, 1: 1, 2: 1}
